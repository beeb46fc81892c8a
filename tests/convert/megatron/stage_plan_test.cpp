// The contents of a stage, by name and position.
#include "convert/megatron/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using ::testing::ElementsAre;

// Two stages of two chunks of one layer; tied, with LayerNorm and biases.
MegatronModel model_of_four_layers() {
  MegatronModel model;
  core::TransformerConfig& config = model.config;
  config.num_layers = 4;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.ffn_hidden_size = 16;
  config.max_position_embeddings = 4;
  config.vocab_size = 21;
  config.make_vocab_size_divisible_by = 8;
  config.resolve(0);
  model.padded = config;
  model.layout.tensor_model_parallel_size = 2;
  model.layout.pipeline_model_parallel_size = 2;
  model.layout.virtual_pipeline_model_parallel_size = 2;
  model.layers = MegatronLayerMap(config.num_layers, model.layout, {});
  model.specs = layout::parameter_specs(config);
  return model;
}

StagePlan plan(int pp, MegatronNaming naming, MegatronOptimizerForm form = MegatronOptimizerForm::kNone) {
  return plan_stage(model_of_four_layers(), pp, {naming}, form, 5,
                    [](const std::string&) { return core::DType::kBf16; });
}

std::vector<std::string> names(const MegatronChunk& chunk) {
  std::vector<std::string> names;
  for (const MegatronParameter& parameter : chunk) names.push_back(parameter.name);
  return names;
}

TEST(StagePlanTest, LocalNamesAreInRegistrationOrder) {
  const StagePlan stage = plan(0, MegatronNaming::kLocal);
  ASSERT_EQ(stage.chunks.size(), 2u);
  EXPECT_THAT(names(stage.chunks[0]),
              ElementsAre("embedding.word_embeddings.weight", "embedding.position_embeddings.weight",
                          "decoder.layers.0.input_layernorm.weight", "decoder.layers.0.input_layernorm.bias",
                          "decoder.layers.0.self_attention.linear_proj.weight",
                          "decoder.layers.0.self_attention.linear_proj.bias",
                          "decoder.layers.0.self_attention.linear_qkv.weight",
                          "decoder.layers.0.self_attention.linear_qkv.bias",
                          "decoder.layers.0.pre_mlp_layernorm.weight", "decoder.layers.0.pre_mlp_layernorm.bias",
                          "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc1.bias",
                          "decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.0.mlp.linear_fc2.bias"));
  EXPECT_EQ(stage.chunks[1].size(), 12u) << "layer 2 is its layer 0";
  EXPECT_EQ(stage.chunks[1][0].name, "decoder.layers.0.input_layernorm.weight");
  EXPECT_EQ(model_of_four_layers().specs[stage.chunks[1][0].spec].layer, 2);
}

TEST(StagePlanTest, TransformerEngineNormsAreInLinearLayers) {
  const StagePlan stage = plan(1, MegatronNaming::kTransformerEngine);
  EXPECT_THAT(
      names(stage.chunks[1]),
      ElementsAre(
          "decoder.layers.0.self_attention.linear_proj.weight", "decoder.layers.0.self_attention.linear_proj.bias",
          "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
          "decoder.layers.0.self_attention.linear_qkv.layer_norm_bias",
          "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.layers.0.self_attention.linear_qkv.bias",
          "decoder.layers.0.mlp.linear_fc1.layer_norm_weight", "decoder.layers.0.mlp.linear_fc1.layer_norm_bias",
          "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc1.bias",
          "decoder.layers.0.mlp.linear_fc2.weight", "decoder.layers.0.mlp.linear_fc2.bias",
          "decoder.final_layernorm.weight", "decoder.final_layernorm.bias", "output_layer.weight"));
  const MegatronParameter& copy = stage.chunks[1].back();
  EXPECT_TRUE(copy.is_tied_copy);
  EXPECT_THAT(copy.tensor.shape, ElementsAre(16, 8)) << "32 rows on two ranks";
}

TEST(StagePlanTest, EveryStateHasItsOwnPlace) {
  const StagePlan by_position = plan(0, MegatronNaming::kLocal, MegatronOptimizerForm::kByPosition);
  EXPECT_EQ(by_position.model.tensors.size(), 4 * 26u);
  EXPECT_EQ(by_position.model.storage_bytes.size(), 5 * 26u) << "and a step for each";
  ASSERT_EQ(by_position.optimizers.size(), 1u);
  const auto& groups = by_position.optimizers[0].groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].size() + groups[1].size(), 26u);
  EXPECT_EQ(by_position.model.contents.size(), 26u);
  EXPECT_EQ(by_position.model.contents[0].second, std::string("\0\0\xa0\x40", 4)) << "5.0";

  const StagePlan distributed = plan(0, MegatronNaming::kLocal, MegatronOptimizerForm::kDistributed);
  EXPECT_EQ(distributed.model.tensors.size(), 26u);
  ASSERT_EQ(distributed.optimizers.size(), 1u);
  const StagePlan::Optimizer& state = distributed.optimizers[0];
  ASSERT_EQ(state.buffers.size(), 2u) << "of each chunk one";
  EXPECT_EQ(state.file.storage_bytes.size(), 6u);
  EXPECT_EQ(state.file.tensors.size(), 3 * 26u);
  EXPECT_EQ(state.file.storage_bytes[0], 4 * state.buffers[0].elements);
  // The embeddings were registered first, so they come last, and share no bucket.
  EXPECT_EQ(state.file.tensors[0].first + 16 * 8, state.buffers[0].elements);
}

// One layer of four experts, on two expert-parallel ranks.
MegatronModel model_of_experts() {
  MegatronModel model;
  core::TransformerConfig& config = model.config;
  config.num_layers = 1;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.add_bias_linear = false;
  config.swiglu = true;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.untie_embeddings_and_output_weights = true;
  config.num_experts = 4;
  config.moe_ffn_hidden_size = 6;
  config.moe_router_enable_expert_bias = true;
  config.max_position_embeddings = 4;
  config.vocab_size = 8;
  config.make_vocab_size_divisible_by = 1;
  config.resolve(0);
  model.padded = config;
  model.layout.data_parallel_size = 2;
  model.layout.expert_model_parallel_size = 2;
  model.experts.ep = 2;
  model.layers = MegatronLayerMap(config.num_layers, model.layout, {});
  model.specs = layout::parameter_specs(config);
  return model;
}

StagePlan plan_experts(const MegatronSpelling& spelling, MegatronOptimizerForm form = MegatronOptimizerForm::kNone) {
  return plan_stage(model_of_experts(), 0, spelling, form, 5, [](const std::string&) { return core::DType::kBf16; });
}

std::vector<std::string> experts_of(const StagePlan& stage) {
  std::vector<std::string> names;
  for (const StagePlan::Entry& entry : stage.entries[0]) {
    if (entry.name.find(".experts.") != std::string::npos)
      names.push_back(entry.name.substr(entry.name.find("experts")));
  }
  return names;
}

TEST(StagePlanTest, ExpertsAreNamedAsInTheirLayers) {
  EXPECT_THAT(experts_of(plan_experts({})),
              ElementsAre("experts.local_experts.0.linear_fc1.weight", "experts.local_experts.0.linear_fc2.weight",
                          "experts.local_experts.1.linear_fc1.weight", "experts.local_experts.1.linear_fc2.weight"));
  EXPECT_THAT(experts_of(plan_experts({MegatronNaming::kTransformerEngine, true})),
              ElementsAre("experts.linear_fc1.weight0", "experts.linear_fc1.weight1", "experts.linear_fc2.weight0",
                          "experts.linear_fc2.weight1"));
  EXPECT_THAT(experts_of(plan_experts({MegatronNaming::kTransformerEngine, false})),
              ElementsAre("experts.local_experts.0.linear_fc1.weight", "experts.local_experts.0.linear_fc2.weight",
                          "experts.local_experts.1.linear_fc1.weight", "experts.local_experts.1.linear_fc2.weight"));
}

TEST(StagePlanTest, GroupedExpertsAreTransposed) {
  const StagePlan stage = plan_experts({MegatronNaming::kLocal, true});
  ASSERT_THAT(experts_of(stage), ElementsAre("experts.weight1", "experts.weight2"));
  const auto tensors_of = [&](std::string_view name) {
    std::vector<StageTensor> tensors;
    for (const StageTensor& tensor : stage.model.tensors) {
      if (tensor.parameter->name.ends_with(name)) tensors.push_back(tensor);
    }
    return tensors;
  };
  for (const StagePlan::Entry& entry : stage.entries[0]) {
    if (entry.name.find("experts.weight") == std::string::npos) continue;
    EXPECT_EQ(entry.shape, entry.name.ends_with("1") ? core::Dims({8, 2 * 12}) : core::Dims({2 * 6, 8}));
  }
  const auto first = tensors_of("weight1"), second = tensors_of("weight2");
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(first[1].storage, first[0].storage);
  EXPECT_EQ(first[1].first, 8 * 12);
  EXPECT_EQ(first[1].transposed_columns, 12);
  EXPECT_EQ(second[1].first, 6 * 8);
  EXPECT_EQ(second[1].transposed_columns, 8);
}

TEST(StagePlanTest, ExpertsHaveTheirOwnOptimizer) {
  const StagePlan by_position = plan_experts({}, MegatronOptimizerForm::kByPosition);
  ASSERT_EQ(by_position.optimizers.size(), 2u);
  EXPECT_EQ(by_position.optimizers[0].groups.size(), 2u);
  ASSERT_EQ(by_position.optimizers[1].groups.size(), 1u) << "matrices all of them";
  EXPECT_EQ(by_position.optimizers[1].groups[0].size(), 4u);
  const StagePlan distributed = plan_experts({}, MegatronOptimizerForm::kDistributed);
  ASSERT_EQ(distributed.optimizers.size(), 2u);
  EXPECT_EQ(distributed.optimizers[1].buffers.size(), 1u);
  EXPECT_EQ(distributed.optimizers[1].file.tensors.size(), 3 * 4u);
  for (const StageTensor& tensor : distributed.optimizers[0].file.tensors) {
    EXPECT_EQ(tensor.parameter->name.find("expert_bias"), std::string::npos) << "which is not trained";
  }
}

}  // namespace
}  // namespace ms::convert
