// What a stage holds, by name and place.
#include "convert/megatron/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  model.specs = ckpt::parameter_specs(config);
  return model;
}

StagePlan plan(int pp, MegatronNaming naming, MegatronOptimizerForm form = MegatronOptimizerForm::kNone) {
  return plan_stage(model_of_four_layers(), pp, naming, form, 5, [](const std::string&) { return core::DType::kBf16; });
}

std::vector<std::string> names(const MegatronChunk& chunk) {
  std::vector<std::string> names;
  for (const MegatronParameter& parameter : chunk) names.push_back(parameter.name);
  return names;
}

TEST(StagePlanTest, MegatronCoresOwnNamesInTheOrderOfItsConstructors) {
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

TEST(StagePlanTest, TransformerEnginesNorms) {
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

TEST(StagePlanTest, EveryStateHasAPlace) {
  const StagePlan by_position = plan(0, MegatronNaming::kLocal, MegatronOptimizerForm::kByPosition);
  EXPECT_EQ(by_position.model.tensors.size(), 4 * 26u);
  EXPECT_EQ(by_position.model.storage_bytes.size(), 5 * 26u) << "and a step for each";
  ASSERT_EQ(by_position.groups.size(), 2u);
  EXPECT_EQ(by_position.groups[0].size() + by_position.groups[1].size(), 26u);
  EXPECT_EQ(by_position.model.contents.size(), 26u);
  EXPECT_EQ(by_position.model.contents[0].second, std::string("\0\0\xa0\x40", 4)) << "5.0";

  const StagePlan distributed = plan(0, MegatronNaming::kLocal, MegatronOptimizerForm::kDistributed);
  EXPECT_EQ(distributed.model.tensors.size(), 26u);
  ASSERT_EQ(distributed.buffers.size(), 2u) << "of each chunk one";
  EXPECT_EQ(distributed.optimizer.storage_bytes.size(), 6u);
  EXPECT_EQ(distributed.optimizer.tensors.size(), 3 * 26u);
  EXPECT_EQ(distributed.optimizer.storage_bytes[0], 4 * distributed.buffers[0].elements);
  // The embeddings were registered first, so they come last, and share no bucket.
  EXPECT_EQ(distributed.optimizer.tensors[0].first + 16 * 8, distributed.buffers[0].elements);
}

}  // namespace
}  // namespace ms::convert
