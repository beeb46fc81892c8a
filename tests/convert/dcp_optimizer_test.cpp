// Groups, steps and the scheduler of an optimizer in a DCP checkpoint: two groups of an AdamW under a LinearLR, saved
// by genuine torch (tests/data/make_fsdp_ranks.py), written as DCP and read by position and by name.
#include "convert/dcp_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/convert.h"
#include "core/error.h"
#include "tests/support/files_of.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

using core::cat;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class DcpOptimizerOfTwoGroups : public testing::Test {
 protected:
  DcpOptimizerOfTwoGroups() {
    ConvertOptions options;
    options.load_dir = cat(MS_TEST_DATA, "/fsdp_ranks/qwen2_4");
    options.save_dir = folder_ / "ms";
    options.save_model_type = Format::kNative;
    convert_checkpoint(options);
    options.load_dir = folder_ / "ms";
    options.save_dir = folder_ / "dcp";
    options.save_model_type = Format::kDcp;
    convert_checkpoint(options);
  }
  void rename(const std::string& from, const std::string& to) {
    std::string metadata = test::read_file(folder_ / "dcp/.metadata");
    size_t done = 0;
    for (size_t at = 0; (at = metadata.find(from, at)) != std::string::npos; ++done)
      metadata.replace(at, from.size(), to);
    ASSERT_GT(done, 0U);
    test::write_file(folder_ / "dcp/.metadata", metadata);
  }
  DcpOptimizer read() {
    const DcpReader reader(folder_ / "dcp");
    const std::string names[] = {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.mlp.up_proj.weight"};
    return read_dcp_optimizer(reader, "optim.state.", names);
  }
  // Values from make_fsdp_ranks.py: matrices decay, vectors do not.
  void expect_groups(const DcpOptimizer& found) {
    ASSERT_EQ(found.groups.size(), 2U);
    EXPECT_THAT(found.groups[0].names, Contains("model.embed_tokens.weight"));
    EXPECT_THAT(found.groups[0].names, Not(Contains("model.norm.weight")));
    EXPECT_THAT(found.groups[1].names, Contains("model.norm.weight"));
    for (const NamedGroup& group : found.groups) {
      EXPECT_EQ(group.settings.initial_lr, 3e-4);
      EXPECT_EQ(group.settings.beta1, 0.8);
      EXPECT_EQ(group.settings.beta2, 0.97);
      EXPECT_EQ(group.settings.step, 3);
    }
    EXPECT_EQ(found.groups[0].settings.weight_decay, 0.05);
    EXPECT_EQ(found.groups[1].settings.weight_decay, 0.0);
  }
  const test::TemporaryFolder folder_;
};

TEST_F(DcpOptimizerOfTwoGroups, GroupsAreReadByPosition) {
  const DcpOptimizer found = read();
  expect_groups(found);
  EXPECT_TRUE(found.used.contains("optim.param_groups.0.lr"));
}

TEST_F(DcpOptimizerOfTwoGroups, GroupsAreReadByNameWithoutPositions) {
  for (const char* index : {"0", "1"}) {
    rename(cat("optim.param_groups.", index, "."), cat("other.param_groups.", index, "."));
  }
  expect_groups(read());
}

TEST_F(DcpOptimizerOfTwoGroups, SchedulerIsReadWithItsKey) {
  const DcpReader reader(folder_ / "dcp");
  std::set<std::string> used;
  std::vector<std::string> decisions;
  const auto scheduler = read_dcp_scheduler(reader, used, decisions);
  ASSERT_TRUE(scheduler);
  EXPECT_EQ(scheduler->at("key"), "lr_scheduler");
  EXPECT_EQ(scheduler->at("state").at("last_epoch"), 3);
  EXPECT_EQ(scheduler->at("state").at("total_iters"), 10);
  EXPECT_TRUE(used.contains("lr_scheduler.last_epoch"));
  EXPECT_THAT(decisions, IsEmpty());
}

TEST_F(DcpOptimizerOfTwoGroups, ScalarTensorsAreRead) {
  const DcpReader reader(folder_ / "dcp");
  EXPECT_EQ(read_dcp_scalar(reader, reader.tensors().at("optim.state.model.norm.weight.step")), 3.0);
  EXPECT_FALSE(read_dcp_scalar(reader, reader.tensors().at("model.model.norm.weight")));
}

}  // namespace
}  // namespace ms::convert
