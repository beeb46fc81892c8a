#include "core/layout/model_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/support/small_model.h"
#include "tests/support/thrown.h"

namespace ms::layout {
namespace {

using test::small_model;

TEST(ModelLayout, RanksAreTpFastestThenDpThenPp) {
  const ModelLayout layout{2, 3, 4, false};
  const RankGrid::Coordinates at = layout.grid().coordinates(1 + 2 * 3 + 8 * 2);
  EXPECT_EQ(std::tuple(at.tp, at.dp, at.pp), std::tuple(1, 3, 2));
}

TEST(ModelLayout, RanksMayBeTpFastestThenPpThenDp) {
  ModelLayout layout{2, 3, 4};
  layout.order = kTpCpEpPpDp;
  const RankGrid::Coordinates at = layout.grid().coordinates(1 + 2 * 2 + 6 * 3);
  EXPECT_EQ(std::tuple(at.tp, at.dp, at.pp), std::tuple(1, 3, 2));
  for (const AxisOrder& order : {kTpCpEpDpPp, *parse_order("pp-dp-tp-cp-ep"), kTpCpEpPpDp}) {
    layout.order = order;
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      EXPECT_EQ(layout.grid().rank(layout.grid().coordinates(rank)), rank);
    }
    EXPECT_EQ(layout_from_json(layout_to_json(layout)), layout);
  }
  EXPECT_NE(layout_to_json(layout), layout_to_json(ModelLayout{2, 3, 4}));
  nlohmann::json json = layout_to_json(layout);
  json["order"] = "dp-tp";
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kUnsupported);
}

TEST(ModelLayout, RefusesSizesThatDoNotDivide) {
  const auto config = small_model(17);
  for (const ModelLayout& layout :
       {ModelLayout{3, 1, 1, false}, ModelLayout{1, 4, 1, false}, ModelLayout{0, 1, 1, false},
        ModelLayout{1, 1, 1, false, 2}, ModelLayout{1, 2, 1, false, 2}, ModelLayout{1, 2, 1, false, 0}}) {
    EXPECT_EQ(test::thrown_by([&] { validate_layout(layout, config); }).code, core::ErrorCode::kInvalidArgument);
  }
}

TEST(ModelLayout, RanksShareAQueryGroupWhereThereAreFewer) {
  auto config = small_model(17);  // 4 heads in 2 groups
  for (const auto& [groups, tp, parts] :
       {std::tuple{2, 4, 2}, std::tuple{1, 2, 2}, std::tuple{1, 4, 4}, std::tuple{2, 2, 1}, std::tuple{2, 1, 1}}) {
    config.num_query_groups = groups;
    validate_layout({tp}, config);
    EXPECT_EQ(query_parts(config, tp), parts) << groups << " groups, tp " << tp;
  }
  config.multi_latent_attention = true;
  EXPECT_EQ(query_parts(config, 4), 1);
}

// Two chunks a stage in a V: stage s has the s-th chunk from both ends.
ModelLayout in_a_v(int pp, std::vector<int64_t> layers = {}) {
  ModelLayout layout;
  layout.pipeline_model_parallel_size = pp;
  layout.virtual_pipeline_model_parallel_size = 2;
  layout.num_layer_list = std::move(layers);
  layout.layer_order = Placement::Order::kV;
  return layout;
}

TEST(ModelLayout, InAVBothEndsOfTheModelAreOnTheFirstStage) {
  auto config = small_model(17);
  config.num_layers = 8;
  for (const ModelLayout& layout : {in_a_v(2), in_a_v(2, {3, 0, 1, 4})}) {
    validate_layout(layout, config);
    const Placement placement = placement_of(config, layout);
    for (int stage = 0; stage < 2; ++stage) {
      for (int chunk = 0; chunk < 2; ++chunk) {
        const LayerRange range = layers_of_chunk(config, layout, stage, chunk);
        EXPECT_EQ(range.first, placement.layers({stage, chunk}).first);
        EXPECT_EQ(range.count, placement.layers({stage, chunk}).count);
      }
    }
    EXPECT_EQ(layers_of_chunk(config, layout, 0, 1).first + layers_of_chunk(config, layout, 0, 1).count, 8);
    EXPECT_EQ(stage_of_loss(layout), 0);
    for (const ParameterSpec& spec : parameter_specs(config)) {
      EXPECT_EQ(stage_holds(spec, config, layout, 0) + stage_holds(spec, config, layout, 1), 1) << spec.key;
      const bool is_end = spec.layer < 0 || spec.layer >= 8;
      EXPECT_TRUE(!is_end || stage_holds(spec, config, layout, 0)) << spec.key;
    }
    config.untie_embeddings_and_output_weights = false;
    EXPECT_FALSE(has_embedding_copy(config, layout));
    EXPECT_TRUE(has_embedding_copy(config, {.pipeline_model_parallel_size = 2}));
    config.untie_embeddings_and_output_weights = true;
  }
}

TEST(ModelLayout, JsonOfAV) {
  for (const ModelLayout& layout : {in_a_v(4), in_a_v(2, {3, 0, 1, 4})}) {
    EXPECT_EQ(layout_from_json(layout_to_json(layout)), layout);
    ModelLayout in_turn = layout;
    in_turn.layer_order = Placement::Order::kRoundRobin;
    EXPECT_NE(layout_to_json(in_turn), layout_to_json(layout));
  }
  nlohmann::json json = layout_to_json(in_a_v(4));
  EXPECT_EQ(json["layer_map"].dump(), R"({"v":"even"})");
  for (const char* wrong : {R"({"v":{"v":"even"}})", R"({"w":"even"})", R"({"v":"odd"})", R"({"v":"even","w":1})"}) {
    json["layer_map"] = nlohmann::json::parse(wrong);
    EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kUnsupported) << wrong;
  }
  json["layer_map"] = nlohmann::json::parse(R"({"v":[1,-1]})");
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
}

TEST(ModelLayout, RefusesAVOfOtherThanTwoChunks) {
  auto config = small_model(17);
  config.num_layers = 12;
  ModelLayout layout = in_a_v(2);
  layout.virtual_pipeline_model_parallel_size = 3;
  EXPECT_EQ(test::thrown_by([&] { validate_layout(layout, config); }).code, core::ErrorCode::kInvalidArgument);
}

TEST(ModelLayout, JsonRoundTrip) {
  for (const ModelLayout& layout :
       {ModelLayout{4, 2, 3, 1, 5}, ModelLayout{4, 2, 4, 3, 1, 8, 2, 1, {1, 1}}, ModelLayout{1, 1, 8, 3, 1, 1, 1, 4}}) {
    EXPECT_EQ(layout_from_json(layout_to_json(layout)), layout);
  }
  ModelLayout shared{2, 1, 6, 1};
  shared.context_parallel_size = 3;
  auto json = layout_to_json(shared);
  EXPECT_EQ(json["dp"], 2);
  EXPECT_EQ(json["cp"], 3);
  EXPECT_EQ(layout_from_json(json), shared);
  json["cp"] = json["dp"] = 1 << 20;
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
  json["cp"] = json["dp"] = 1;
  json["layer_map"] = {1, -1};
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
  json["layer_map"] = "even";
  json["vpp"] = "two";
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::layout
