// What features say of values that do something else than they seem to.
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/features/registry.h"
#include "train/mask_grid_file.h"

namespace ms::train {
namespace {

using Flags = std::vector<std::string>;
using Lines = std::vector<std::string>;

Lines notices_of(std::initializer_list<Flags> parts) {
  Flags flags = {
      "--num-layers", "4",   "--hidden-size",      "64", "--num-attention-heads", "4",  "--vocab-size",  "96",
      "--seq-length", "32",  "--micro-batch-size", "1",  "--global-batch-size",   "16", "--train-iters", "9",
      "--lr",         "1e-3"};
  for (const Flags& part : parts) flags.insert(flags.end(), part.begin(), part.end());
  TrainerConfig config;
  core::ConfigFields fields = config.fields();
  fields.parse_flags(flags);
  config.resolve_and_validate(8);
  Lines found;
  for (const Feature& feature : features()) {
    if (feature.notices == nullptr) continue;
    for (const std::string& notice : feature.notices(config)) found.push_back(notice);
  }
  return found;
}

TEST(FeatureNotices, NumbersOfLayersAboveThoseOfAStage) {
  const Flags two = {"--pipeline-model-parallel-size", "2"};
  const Flags chunks = {"--num-virtual-stages-per-pipeline-rank", "2"};
  const Flags block = {"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers"};
  EXPECT_EQ(notices_of({two, block, {"2"}}), Lines());
  EXPECT_EQ(notices_of({two, block, {"3"}}),
            Lines{"--recompute-num-layers 3: no stage has more than 2 layers: taken as 2, as Megatron does"});
  EXPECT_EQ(notices_of({two, block, {"2"}, chunks}),
            Lines{"--recompute-num-layers 2: no chunk of a stage has more than 1 layer: taken as 1, as Megatron does"});
  EXPECT_EQ(notices_of({two, block, {"2"}, chunks, {"--enable-recompute-layers-per-pp-rank"}}), Lines());
  EXPECT_EQ(notices_of({two, block, {"3"}, {"--num-layer-list", "3,1"}}), Lines());
  EXPECT_EQ(notices_of({two, {"--recompute-norm", "--recompute-norm-num-layers", "4"}}),
            Lines{"--recompute-norm-num-layers 4: no stage has more than 2 layers: taken as 2, as Megatron does"});
  EXPECT_EQ(
      notices_of({two, {"--recompute-activation-function", "--recompute-activation-function-num-layers", "3"}}).size(),
      1U);
  EXPECT_EQ(notices_of({two, {"--recompute-module-list", "3,1"}}),
            Lines{"--recompute-module-list: 3 for stage 0, which has 2 layers: taken as 2"});
}

TEST(FeatureNotices, LatentAttentionHasItsOwnSizesOfHeads) {
  const Flags latent = {"--disable-bias-linear", "--multi-latent-attention",
                        "--kv-lora-rank",        "6",
                        "--qk-head-dim",         "4",
                        "--qk-pos-emb-head-dim", "2",
                        "--v-head-dim",          "4"};
  EXPECT_EQ(notices_of({latent}), Lines());
  EXPECT_EQ(notices_of({latent, {"--kv-channels", "4"}}), Lines());
  const Lines size = notices_of({latent, {"--kv-channels", "16"}});
  ASSERT_EQ(size.size(), 1U);
  EXPECT_EQ(size[0].rfind("--kv-channels has no effect with --multi-latent-attention", 0), 0U) << size[0];
  const Lines groups = notices_of({latent, {"--group-query-attention", "--num-query-groups", "2"}});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].rfind("--group-query-attention has no effect with --multi-latent-attention", 0), 0U) << groups[0];
}

TEST(FeatureNotices, DocumentsOfTheDataSetReplaceEodTokens) {
  const Flags of_data = {"--dataloader-inter-document-masking"};
  EXPECT_EQ(notices_of({of_data}), Lines());
  EXPECT_EQ(notices_of({{"--reset-attention-mask"}}), Lines());
  for (const char* flag : {"--reset-attention-mask", "--reset-position-ids"}) {
    const Lines seen = notices_of({of_data, {flag}});
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(
        seen[0],
        "--reset-attention-mask and --reset-position-ids have no effect with "
        "--dataloader-inter-document-masking, which takes the ends of documents from the data set, as in Megatron");
  }
  // One document a sample: what is within it ends as ever.
  EXPECT_EQ(notices_of({of_data, {"--variable-seq-lengths", "--reset-attention-mask"}}), Lines());
}

// transformers ranks DeepSeek-V2's groups by their best expert.
TEST(FeatureNotices, GroupsOfExpertsAreRankedAsInMegatron) {
  const Flags groups = {
      "--disable-bias-linear",   "--num-experts", "8", "--moe-router-num-groups", "4", "--moe-router-group-topk", "2",
      "--moe-router-pre-softmax"};
  const Flags two_each = {"--moe-router-topk", "4"},
              best = {"--moe-router-load-balancing-type", "group_limited_greedy"};
  const Lines told = notices_of({groups, two_each});
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("the sum of their 2 highest scores"), std::string::npos) << told[0];
  EXPECT_EQ(notices_of({groups, {"--moe-router-topk", "2"}}), Lines()) << "one of each group";
  EXPECT_EQ(notices_of({groups, two_each, best}), Lines());
  EXPECT_EQ(notices_of({groups, two_each, {"--moe-router-score-function", "sigmoid"}}), Lines()) << "as DeepSeek-V3";
}

TEST(FeatureNotices, OneRankExchangesNoHeads) {
  const Flags four = {"--context-parallel-size", "4", "--attention-dropout", "0"};
  const Flags adaptive = {"--context-parallel-algo", "hybrid_adaptive_cp_algo"}, ring = {"--cp-comm-type", "a2a+p2p"};
  EXPECT_EQ(
      notices_of({four, adaptive, {"--ulysses-degree-in-cp", "1"}}),
      Lines{"--ulysses-degree-in-cp 1: one rank exchanges no heads: hybrid_adaptive_cp_algo is adaptive_cp_algo"});
  EXPECT_EQ(notices_of({four, adaptive, {"--ulysses-degree-in-cp", "2"}}), Lines());
  EXPECT_EQ(notices_of({four, ring, {"--hierarchical-context-parallel-sizes", "1", "4"}}),
            Lines{"--hierarchical-context-parallel-sizes 1 4: one rank exchanges no heads: a2a+p2p is p2p"});
}

// Of 32 positions with cells of 2: the next one is seen within a cell, and beyond it where the next cell is.
TEST(FeatureNotices, TokensThatAGeneralGridShowsDoNotCount) {
  const Flags grid = {"--attention-mask-grid", MS_TEST_DATA "/train/mask_grids/general_16.txt"};
  const Flags general = {"--attention-mask-type", "general"};
  EXPECT_EQ(notices_of({grid}), Lines()) << "causal";
  EXPECT_EQ(notices_of({general}), Lines()) << "without a grid";
  const layout::MaskGrid of_file = read_mask_grid(grid[1], 32, /*is_causal=*/false);
  int64_t count = 1;
  for (int64_t position = 0; position + 1 < 32; ++position) count += of_file.sees(position, position + 1) ? 0 : 1;
  EXPECT_EQ(notices_of({grid, general}), Lines{core::cat("--attention-mask-type general: ", count,
                                                         " of the 32 positions of a sample count for the "
                                                         "loss: the others see the token that they predict")});
}

}  // namespace
}  // namespace ms::train
