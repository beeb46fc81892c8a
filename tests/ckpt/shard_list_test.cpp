#include "ckpt/shard_list.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ckpt/plan.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/placement.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

using test::mixed_roles;
using test::small_model;

TEST(ShardList, EveryElementHasExactlyOneWriter) {
  for (const int64_t vocab : {17, 127}) {
    for (const bool tied : {false, true}) {
      const auto config = small_model(vocab, tied);
      for (const int tp : {1, 2, 4}) {
        for (const int pp : {1, 2}) {
          for (const int dp : {1, 2, 3}) {
            for (const int zero : {0, 1, 3}) {
              const layout::ModelLayout layout{tp, pp, dp, zero};
              const auto list = shards_of_checkpoint(layout, config, mixed_roles());
              std::map<std::pair<std::string, core::TensorRole>, std::vector<core::ShardedTensor>> tensors;
              for (const auto& shard : list.shards) tensors[{shard.key, shard.role}].push_back(shard);
              EXPECT_EQ(tensors.size(), layout::parameter_specs(config).size() * 4);
              for (const auto& [name, shards] : tensors) {
                const auto findings = check_coverage(shards);
                ASSERT_TRUE(findings.empty()) << findings.front() << " tp " << tp << " pp " << pp << " dp " << dp;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ShardList, StagesHoldTheirLayersEmbeddingAndOutput) {
  const auto config = small_model(17, true);
  const layout::ModelLayout layout{1, 2, 1, false};
  const std::vector<RoleSpec> roles = {{core::TensorRole::kParam, core::DType::kFp32}};
  std::map<std::string, std::vector<std::pair<int, int>>> holders;  // key -> (rank, replica)
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& shard : shards_of_rank(layout, config, rank, roles)) {
      auto& list = holders[shard.key];
      if (list.empty() || list.back() != std::pair(rank, shard.replica_id)) list.emplace_back(rank, shard.replica_id);
    }
  }
  using Holders = std::vector<std::pair<int, int>>;
  EXPECT_EQ(holders["embedding.word_embeddings.weight"], (Holders{{0, 0}, {1, 1}}));
  EXPECT_EQ(holders["decoder.layers.0.mlp.linear_fc1.weight"], (Holders{{0, 0}}));
  EXPECT_EQ(holders["decoder.layers.1.mlp.linear_fc1.weight"], (Holders{{1, 0}}));
  EXPECT_EQ(holders["decoder.final_layernorm.weight"], (Holders{{1, 0}}));
  EXPECT_EQ(holders.count("output_layer.weight"), 0u);
}

TEST(ShardList, VirtualStagesHoldChunksInTurn) {
  auto config = small_model(17);
  config.num_layers = 8;
  layout::ModelLayout layout{1, 2, 1, false};
  layout.virtual_pipeline_model_parallel_size = layout::virtual_pipeline_size(config, 2, 2);
  EXPECT_EQ(layout.virtual_pipeline_model_parallel_size, 2);
  const std::vector<std::vector<int64_t>> expected = {{0, 1, 4, 5}, {2, 3, 6, 7}};
  for (int stage = 0; stage < 2; ++stage) {
    std::vector<int64_t> held, listed;
    for (const layout::ParameterSpec& spec : layout::parameter_specs(config)) {
      const bool a_layer = spec.key.find("linear_fc2.weight") != std::string::npos;
      if (a_layer && layout::stage_holds(spec, config, layout, stage)) held.push_back(spec.layer);
    }
    for (int chunk = 0; chunk < 2; ++chunk) {
      const layout::LayerRange range = layout::layers_of_chunk(config, layout, stage, chunk);
      for (int64_t layer = range.first; layer < range.first + range.count; ++layer) listed.push_back(layer);
    }
    EXPECT_EQ(held, expected[static_cast<size_t>(stage)]);
    EXPECT_EQ(listed, held);
  }
  // Two of them times the number of stages are 0 and 2 modulo 2^64.
  for (const int64_t layers : {int64_t{3}, int64_t{16}, int64_t{-1}, INT64_MAX, INT64_MIN, (int64_t{1} << 62) + 1}) {
    for (const int stages : {2, 4}) {
      EXPECT_EQ(test::thrown_by([&] { layout::virtual_pipeline_size(config, stages, layers); }).code,
                core::ErrorCode::kInvalidArgument)
          << layers << " on " << stages;
    }
  }
  EXPECT_EQ(test::thrown_by([&] { layout::virtual_pipeline_size(config, 4, int64_t{1} << 62); }).code,
            core::ErrorCode::kInvalidArgument);
}

TEST(ShardList, UnevenStagesFollowTheLayerList) {
  auto config = small_model(17);
  config.num_layers = 7;
  using List = std::vector<int64_t>;
  EXPECT_EQ(layout::uneven_layer_list(7, 3, 1, 2), (List{1, 4, 2}));
  EXPECT_EQ(layout::uneven_layer_list(7, 4, 1, 0), (List{1, 2, 2, 2}));
  EXPECT_EQ(layout::uneven_layer_list(7, 4, 0, 1), (List{2, 2, 2, 1}));
  for (const auto& [pp, first, last] : {std::array{3, 1, 1}, std::array{2, 3, 3}, std::array{1, 4, 4}}) {
    EXPECT_EQ(test::thrown_by([&] { layout::uneven_layer_list(7, pp + (pp == 3), first, last); }).code,
              core::ErrorCode::kInvalidArgument);
  }
  layout::ModelLayout layout{1, 2, 1, 0, 2};  // chunks 0 and 2 on stage 0, 1 and 3 on stage 1
  layout.num_layer_list = {1, 3, 2, 1};
  layout::validate_layout(layout, config);
  const std::vector<List> expected = {{0, 4, 5}, {1, 2, 3, 6}};
  for (int stage = 0; stage < 2; ++stage) {
    List held;
    for (const layout::ParameterSpec& spec : layout::parameter_specs(config)) {
      const bool a_layer = spec.key.find("linear_fc2.weight") != std::string::npos;
      if (a_layer && layout::stage_holds(spec, config, layout, stage)) held.push_back(spec.layer);
    }
    EXPECT_EQ(held, expected[static_cast<size_t>(stage)]);
  }
  EXPECT_TRUE(check_coverage(shards_of_checkpoint(layout, config, mixed_roles()).shards).empty());
  for (const List& wrong : {List{1, 3, 2}, List{1, 3, 2, 2}, List{-1, 5, 2, 1}}) {
    layout.num_layer_list = wrong;
    EXPECT_EQ(test::thrown_by([&] { layout::validate_layout(layout, config); }).code,
              core::ErrorCode::kInvalidArgument);
  }
}

TEST(ShardList, ExpertsAreDistributedInBlocksOverTheExpertGrid) {
  const auto config = small_model(17);
  const std::string fc1 = "decoder.layers.1.mlp.experts.local_experts.5.linear_fc1.weight";
  auto spec = layout::parameter_spec_of(fc1, core::Dims{16, 24}, config);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->expert, 5);
  EXPECT_EQ(spec->layer, 1);
  EXPECT_EQ(spec->rule, layout::TpRule::kGatedRows);
  spec->num_experts = 8;
  // TP 2, DP 4, EP 4, ETP 2: expert 5 is on expert rank 2, which is ranks 4 and 5 of the stage.
  const layout::ModelLayout layout{2, 1, 4, 0, 1, 4, 2};
  for (int rank = 0; rank < 8; ++rank) {
    const auto shards = shards_of_parameter(*spec, config, layout, rank, {});
    ASSERT_EQ(shards.size(), rank == 4 || rank == 5 ? 2u : 0u) << rank;
    for (size_t half = 0; half < shards.size(); ++half) {
      EXPECT_EQ(shards[half].global_offset, (core::Dims{static_cast<int64_t>(half) * 8 + (rank - 4) * 4, 0}));
      EXPECT_EQ(shards[half].local_shape, (core::Dims{4, 24}));
    }
  }
  // TP 2, DP 4, EP 2, ETP 1: four replicas, which ZeRO shards.
  for (const int zero : {0, 3}) {
    ShardTable table;
    for (int rank = 0; rank < 8; ++rank) {
      for (const auto& shard : shards_of_parameter(*spec, config, {2, 1, 4, zero, 1, 2, 1}, rank, {})) {
        EXPECT_EQ(rank % 2, 1);
        table.push_back(shard);
      }
    }
    EXPECT_TRUE(check_coverage(table).empty());
  }
  for (const char* unknown : {"decoder.layers.2.mlp.router.weight", "decoder.layers.1.mlp.router.weigh",
                              "decoder.layers.1.mlp.experts.local_experts.x.linear_fc1.weight",
                              "decoder.layers.1.linear_fc1.weight", "encoder.layers.1.mlp.router.weight"}) {
    EXPECT_FALSE(layout::parameter_spec_of(unknown, core::Dims{16, 24}, config)) << unknown;
  }
}

TEST(ShardList, PassthroughTensorsAreUnshardedOnFirstStage) {
  const layout::ParameterSpec spec = layout::passthrough_spec("visual.proj.weight", core::Dims{2, 3, 4});
  const core::TransformerConfig config = small_model(128);
  const layout::ModelLayout layout{.tensor_model_parallel_size = 2, .pipeline_model_parallel_size = 2};
  EXPECT_TRUE(layout::has_role(spec, core::TensorRole::kBuffer));
  EXPECT_TRUE(layout::stage_holds(spec, config, layout, 0));
  EXPECT_FALSE(layout::stage_holds(spec, config, layout, 1));
  for (const int rank : {0, 1}) {
    const auto shards =
        shards_of_parameter(spec, config, layout, rank, {core::TensorRole::kBuffer, core::DType::kBf16});
    ASSERT_EQ(shards.size(), 1U);
    EXPECT_EQ(shards[0].local_shape, (core::Dims{2, 3, 4}));
    EXPECT_EQ(shards[0].replica_id == 0, rank == 0);
  }
}

// Experts, latent attention, shared experts and a multi-token prediction layer: the list has as many parameters as the
// config counts.
TEST(ShardList, SpecsOfExpertsMatchParameterCount) {
  core::TransformerConfig config = small_model(128);
  config.add_bias_linear = config.add_qkv_bias = false;
  config.num_experts = 4;
  config.moe_ffn_hidden_size = 8;
  config.moe_layer_freq = "([0]*1+[1]*1)";
  config.moe_router_enable_expert_bias = true;
  config.moe_shared_expert_intermediate_size = 12;
  config.moe_shared_expert_gate = true;
  config.mtp_num_layers = 2;
  for (const int64_t rank : {int64_t{-1}, int64_t{0}, int64_t{10}}) {
    config.multi_latent_attention = rank >= 0;
    config.q_lora_rank = rank;
    config.kv_lora_rank = 6;
    config.qk_head_dim = 8;
    config.qk_pos_emb_head_dim = 4;
    config.v_head_dim = 10;
    config.resolve(16);
    config.validate();
    int64_t sum = 0, buffers = 0;
    for (const layout::ParameterSpec& spec : layout::parameter_specs(config)) {
      (spec.is_buffer ? buffers : sum) += core::num_elements(spec.global_shape);
      EXPECT_EQ(spec.expert >= 0, spec.key.find("local_experts") != std::string::npos);
      const auto by_name = layout::parameter_spec_of(spec.key, spec.global_shape, config);
      if (!by_name) continue;  // parameters of a dense model
      EXPECT_EQ(by_name->rule, spec.rule) << spec.key;
      EXPECT_EQ(by_name->layer, spec.layer) << spec.key;
      EXPECT_EQ(by_name->expert, spec.expert) << spec.key;
    }
    EXPECT_EQ(sum, config.num_parameters(1)) << rank;
    EXPECT_EQ(buffers, 3 * 4);
    const RoleSpec roles[] = {{core::TensorRole::kParam, core::DType::kBf16}, {core::TensorRole::kBuffer}};
    const layout::ModelLayout layout{2, 2, 2, 0, 1, 4, 1};
    EXPECT_TRUE(check_coverage(shards_of_checkpoint(layout, config, roles).shards).empty());
  }
}

TEST(RankRuns, EqualsVector) {
  RankRuns runs;
  EXPECT_TRUE(runs.empty());
  const std::vector<int32_t> ranks = {3, 3, 3, 0, 7, 7, 3};
  for (const int32_t rank : ranks) runs.push_back(rank);
  ASSERT_EQ(runs.size(), ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(runs[i], ranks[i]) << i;
  EXPECT_EQ(runs.back(), 3);
}

}  // namespace
}  // namespace ms::ckpt
