// What a plan says of a grid, against the pairs that it shows.
#include "train/mask_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "tests/support/mask_grids.h"
#include "train/config.h"
#include "train/features/active_features.h"
#include "train/plan.h"

namespace ms::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSeq = 32;

RunPlan plan_of(const std::vector<std::string>& flags) {
  std::vector<std::string> all = {
      "--num-layers", "2",   "--hidden-size",      "64", "--num-attention-heads", "4", "--vocab-size",  "96",
      "--seq-length", "32",  "--micro-batch-size", "1",  "--global-batch-size",   "4", "--train-iters", "9",
      "--lr",         "1e-3"};
  all.insert(all.end(), flags.begin(), flags.end());
  TrainerConfig config;
  config.fields().parse_flags(all);
  config.resolve_and_validate(1);
  return RunPlan(config.training_step(1), active_features(config), {}, 0, config.training.attention_mask_grid);
}

TEST(MaskText, APlanNamesItsGrid) {
  for (const auto& [file, type, cells] :
       {std::tuple("causal_8.txt", "causal", 8), std::tuple("general_16.txt", "general", 16)}) {
    const std::string path = core::cat(MS_TEST_DATA, "/train/mask_grids/", file);
    const RunPlan plan = plan_of({"--attention-mask-grid", path, "--attention-mask-type", type});
    const nlohmann::json json = plan.json()["attention_mask_grid"];
    EXPECT_EQ(json["file"], path);
    EXPECT_EQ(json["type"], type);
    EXPECT_EQ(json["cells"], cells);
    EXPECT_EQ(json["positions_of_cell"], kSeq / cells);
    EXPECT_THAT(plan.text(), HasSubstr(core::cat("--attention-mask-grid ", path, ": ", cells, " x ", cells,
                                                 " cells of ", kSeq / cells, " positions, ", type, "; ")));
  }
  const RunPlan without = plan_of({"--attention-mask-type", "general"});
  EXPECT_FALSE(without.json().contains("attention_mask_grid"));
  EXPECT_THAT(without.text(), Not(HasSubstr("--attention-mask-grid")));
}

TEST(MaskText, SharesAreOfAllScoresAndOfACausalMask) {
  const auto ones = [](int64_t, int64_t) { return true; };
  const auto json_of = [](int64_t cells, bool is_causal, const test::SeesCell& sees) {
    return mask_grid_json(*test::make_grid(kSeq, cells, is_causal, sees), "grid.txt");
  };
  const nlohmann::json causal = json_of(4, true, ones);
  EXPECT_EQ(causal["visible_scores"], kSeq * (kSeq + 1) / 2);
  EXPECT_EQ(causal["share_of_causal"], 1.0);
  EXPECT_EQ(causal["positions_with_loss"], kSeq);
  const nlohmann::json general = json_of(4, false, ones);
  EXPECT_EQ(general["visible_scores"], kSeq * kSeq);
  EXPECT_EQ(general["share_of_all"], 1.0);
  EXPECT_EQ(general["positions_with_loss"], 1) << "the last one";
  const nlohmann::json blocks = json_of(8, false, test::block_cells(2));
  EXPECT_EQ(blocks["share_of_all"], 0.25);
  EXPECT_EQ(blocks["positions_with_loss"], 4) << "the last one of each block";
}

TEST(MaskText, LineSaysWhatCounts) {
  const auto line = [](bool is_causal) {
    return mask_grid_text(*test::make_grid(kSeq, kSeq, is_causal, test::block_cells(8)), "a.txt");
  };
  EXPECT_EQ(
      line(true),
      "--attention-mask-grid a.txt: 32 x 32 cells of 1 position, causal; 14.06 % of all scores are visible, 27.27 % "
      "of a causal mask's\n");
  EXPECT_EQ(
      line(false),
      "--attention-mask-grid a.txt: 32 x 32 cells of 1 position, general; 25.00 % of all scores are visible, 48.48 "
      "% of a causal mask's; the loss of 4 of the 32 positions of a sample counts\n");
}

}  // namespace
}  // namespace ms::train
