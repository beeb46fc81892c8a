// Masks of the run that saved a checkpoint and of the one that continues it.
#include "train/saved_mask.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using train::TrainerConfig;

constexpr const char* kBlocks = "1100\n1100\n0011\n0011\n";

TrainerConfig with_grid(TrainerConfig config, const std::string& file, const std::string& cells,
                        const std::string& type = "causal") {
  test::write_file(file, cells);
  config.training.attention_mask_grid = file;
  config.training.attention_mask_type = type;
  config.resolve(1);
  return config;
}

ckpt::CheckpointInfo saved_by(TrainerConfig config) {
  ckpt::CheckpointInfo info;
  info.common = {{"config", config.fields().dump()}};
  train::note_mask(config, info.common);
  return info;
}

TEST(SavedMask, CellsAreComparedAndFilesAreNot) {
  const test::TemporaryFolder folder;
  const TrainerConfig causal = test::tiny_config(folder.path());
  const std::string file = folder.path() / "a.txt", other = folder.path() / "b.txt";
  const TrainerConfig blocks = with_grid(causal, file, kBlocks);
  EXPECT_EQ(train::mask_differences(saved_by(causal), causal), "");
  EXPECT_EQ(train::mask_differences(saved_by(blocks), blocks), "");
  EXPECT_EQ(train::mask_differences(saved_by(blocks), with_grid(causal, other, kBlocks)), "");
  EXPECT_EQ(train::mask_differences(saved_by(blocks), with_grid(causal, other, "10\n11\n")),
            "--attention-mask-grid " + other + " shows other cells than the one that the checkpoint was made with");
  EXPECT_EQ(train::mask_differences(saved_by(blocks), with_grid(causal, other, kBlocks, "general")),
            "--attention-mask-type is general but the checkpoint was made with causal");
  EXPECT_EQ(train::mask_differences(saved_by(blocks), causal),
            "there is no --attention-mask-grid but the checkpoint was made with one");
  EXPECT_EQ(train::mask_differences(saved_by(causal), blocks),
            "--attention-mask-grid " + file + " but the checkpoint was made without one");
}

TEST(SavedMask, OtherMasksOfSamplesAreCompared) {
  const test::TemporaryFolder folder;
  const TrainerConfig causal = test::tiny_config(folder.path());
  TrainerConfig prefix = causal, apart = causal;
  prefix.training.sparse_mode = 5, prefix.training.prefix_length = 8;
  apart.training.reset_attention_mask = true;
  EXPECT_EQ(train::mask_differences(saved_by(prefix), prefix), "");
  EXPECT_EQ(train::mask_differences(saved_by(causal), prefix),
            "--prefix-length is 8 but the checkpoint was made with 0");
  EXPECT_EQ(
      train::mask_differences(saved_by(prefix), apart),
      "--prefix-length is 0 but the checkpoint was made with 8; --reset-attention-mask is true but the checkpoint "
      "was made with false");
}

TEST(SavedMask, NothingIsKnownOfCheckpointsOfOthers) {
  const test::TemporaryFolder folder;
  const TrainerConfig blocks = with_grid(test::tiny_config(folder.path()), folder.path() / "a.txt", kBlocks);
  ckpt::CheckpointInfo info;
  for (const nlohmann::json& common :
       {nlohmann::json(), nlohmann::json::object(), nlohmann::json{{"config", {{"optimizer", {{"lr", 1}}}}}},
        nlohmann::json{{"config", 7}}}) {
    info.common = common;
    EXPECT_EQ(train::mask_differences(info, blocks), "") << common;
  }
}

// What a run logs that continues another one, with the grid of the second file.
std::string log_of_continued(const std::string& second, bool finetune = false) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path());
  config.training.train_iters = 2;
  config.checkpoint.save = folder.path() / "saved";
  config.training.attention_mask_grid = folder.path() / "grid.txt";
  test::write_file(config.training.attention_mask_grid, kBlocks);
  test::run_on_threads(config, 1);
  config.checkpoint.load = config.checkpoint.save;
  config.checkpoint.save.clear();
  config.checkpoint.finetune = finetune;
  config.training.train_iters = 3;
  test::write_file(config.training.attention_mask_grid, second);
  testing::internal::CaptureStderr();
  test::run_on_threads(config, 1);
  return testing::internal::GetCapturedStderr();
}

TEST(SavedMask, ARunThatContinuesWithOtherCellsIsWarned) {
  constexpr const char* kWarned = "shows other cells than the one that the checkpoint was made with. The run goes on";
  EXPECT_NE(log_of_continued("10\n11\n").find(kWarned), std::string::npos);
  EXPECT_EQ(log_of_continued(kBlocks).find(kWarned), std::string::npos);
  EXPECT_EQ(log_of_continued("10\n11\n", /*finetune=*/true).find(kWarned), std::string::npos) << "a new run";
}

}  // namespace
}  // namespace ms
