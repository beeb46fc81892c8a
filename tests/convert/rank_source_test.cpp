// FSDP rank files of a Qwen2, written by genuine torch (tests/data/make_fsdp_ranks.py), read through the family.
#include "convert/rank_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "ckpt/optimizer_settings.h"
#include "convert/detect.h"
#include "core/error.h"
#include "tests/convert/conversions.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::ErrorCode;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

const std::string kFolder = cat(MS_TEST_DATA, "/fsdp_ranks/");
std::string expected(const std::string& name, const std::string& role) {
  return cat(kFolder, "expected/", name, "/", role);
}

void expect_equals(ckpt::Source& source, const std::string& name) {
  test::expect_equals_folder(source, TensorRole::kParam, expected(name, "param"));
  test::expect_equals_folder(source, TensorRole::kExpAvg, expected(name, "exp_avg"));
  test::expect_equals_folder(source, TensorRole::kExpAvgSq, expected(name, "exp_avg_sq"));
}

std::unique_ptr<ckpt::Source> open(const std::string& name, std::vector<std::string>& decisions) {
  return open_rank_files(kFolder + name, {.hf_cfg_dir = cat(kFolder, name, "/huggingface")}, decisions);
}

TEST(RankSource, StateByNumberIsAssignedToParameters) {
  std::vector<std::string> decisions;
  const auto source = open("qwen2_2", decisions);
  EXPECT_TRUE(source->info().has_model);
  EXPECT_EQ(source->info().iteration, 3);
  expect_equals(*source, "qwen2_2");
  const auto groups = ckpt::optimizer_groups(*source);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].beta1, 0.8);
  EXPECT_EQ(groups[0].initial_lr, 3e-4);
  EXPECT_EQ(groups[0].step, 3);
  EXPECT_EQ(source->info().common["lr_scheduler"]["state"]["last_epoch"], 3);
}

TEST(RankSource, GroupsByNameStaySeparate) {
  std::vector<std::string> decisions;
  const auto source = open("qwen2_4", decisions);
  expect_equals(*source, "qwen2_4");
  const auto groups = ckpt::optimizer_groups(*source);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].weight_decay, 0.05);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
}

class RankSourceConversion : public testing::TestWithParam<Format> {
 protected:
  test::TemporaryFolder folder_;
};

// Rank files -> a sharded checkpoint of another program -> read again: every weight and moment equals what torch
// gathered.
TEST_P(RankSourceConversion, EqualsTorchsGather) {
  for (const std::string name : {"qwen2_2", "qwen2_4"}) {
    ConvertOptions options;
    options.load_dir = kFolder + name;  // its config.json is in huggingface/
    options.save_dir = folder_ / name;
    options.save_model_type = GetParam();
    options.target_tensor_parallel_size = 2;
    if (GetParam() != Format::kNative) options.optimizer.lr = 3e-4;  // Megatron has no LinearLR
    const ConvertReport report = convert_checkpoint(options);
    EXPECT_EQ(report.iteration, 3);
    EXPECT_THAT(report.decisions, Contains(HasSubstr("huggingface/config.json")));
    const auto made = open_source(report.path);
    expect_equals(*made, name);
    const SourcePair pair = open_comparable(report.path, options.load_dir);
    EXPECT_TRUE(pair.second->info().has_model);
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, RankSourceConversion,
                         testing::Values(Format::kNative, Format::kMegatron, Format::kMegatronDist),
                         [](const auto& test) { return std::string(format_name(test.param)); });

TEST(RankSource, AbsentOptimizerStateIsReported) {
  const test::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(kFolder + "qwen2_2")) {
    if (entry.path().filename().string().starts_with("model_")) fs::copy(entry.path(), folder.path());
  }
  std::vector<std::string> decisions;
  const auto source = open_rank_files(folder.path().string(), {.hf_cfg_dir = expected("qwen2_2", "param")}, decisions);
  test::expect_equals_folder(*source, TensorRole::kParam, expected("qwen2_2", "param"));
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kExpAvg));
  EXPECT_THAT(decisions, Contains(HasSubstr("no optim_world_size_* files: only weights")));
}

TEST(RankSource, MissingConfigNamesTheFlag) {
  const test::Thrown thrown = test::thrown_by([&] {
    std::vector<std::string> decisions;
    open_rank_files(kFolder + "shard_2", {}, decisions);
  });
  EXPECT_EQ(thrown.code, ErrorCode::kNotFound);
  EXPECT_THAT(thrown.text, HasSubstr("--hf-cfg-dir"));
}

}  // namespace
}  // namespace ms::convert
