#include "core/layout/model_layout.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

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

// Megatron's layouts may have them (validate_layout); a checkpoint of ours is for mstrain, which does not train them.
TEST(ModelLayout, RefusesPartsOfQueryGroups) {
  auto config = small_model(17);  // 4 heads in 2 groups
  for (const auto& [groups, tp] : {std::pair{2, 4}, std::pair{1, 2}, std::pair{1, 4}}) {
    config.num_query_groups = groups;
    ModelLayout layout{tp};
    layout.size_flags = kTargetSizeFlags;
    validate_layout(layout, config);
    const auto thrown = test::thrown_by([&] { refuse_parts_of_query_groups(layout, config); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
    EXPECT_EQ(thrown.text.rfind(
                  core::cat("--num-query-groups ", groups, " is below --target-tensor-parallel-size ", tp, ": "), 0),
              0u)
        << thrown.text;
  }
  config.num_query_groups = 2;
  for (const int tp : {1, 2}) refuse_parts_of_query_groups({tp}, config);
}

TEST(ModelLayout, JsonRoundTrip) {
  for (const ModelLayout& layout : {ModelLayout{4, 2, 3, 1, 5}, ModelLayout{4, 2, 4, 3, 1, 8, 2, {1, 1}}}) {
    EXPECT_EQ(layout_from_json(layout_to_json(layout)), layout);
  }
  auto json = layout_to_json({});
  json["cp"] = 2;
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kUnsupported);
  json["cp"] = 1;
  json["layer_map"] = {1, -1};
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
  json["layer_map"] = "even";
  json["vpp"] = "two";
  EXPECT_EQ(test::thrown_by([&] { layout_from_json(json); }).code, core::ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::layout
