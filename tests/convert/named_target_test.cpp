// Which tensors of a set are written where, and in which order.
#include "convert/named_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/named.h"
#include "convert/safetensors.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

using core::TensorRole;
using testing::ElementsAre;

TEST(NamedTarget, OptimizerStateIsDistinguishedFromBuffers) {
  EXPECT_FALSE(is_optimizer_state(TensorRole::kParam, "optim.state.w.step"));
  EXPECT_TRUE(is_optimizer_state(TensorRole::kBuffer, "optim.state.w.step"));
  EXPECT_FALSE(is_optimizer_state(TensorRole::kBuffer, "running_mean"));
  EXPECT_TRUE(is_optimizer_state(TensorRole::kExpAvg, "w"));
}

TEST(NamedTarget, LayersAreInNumericOrder) {
  const test::TemporaryFolder folder;
  std::vector<SafetensorsEntry> entries;
  for (const char* name : {"layers.10.w", "layers.2.w", "layers.2.b", "embed", "layers.02.w"}) {
    entries.push_back({name, SafetensorsDType::kU8, {1}});
  }
  const SafetensorsPreamble preamble = make_safetensors_preamble(entries, {});
  test::write_file(folder / "x.safetensors", preamble.bytes + std::string(entries.size(), 'x'));
  std::vector<std::string> decisions;
  const auto source = open_named(folder / "x.safetensors", true, decisions);
  NamedTargetOptions options;
  options.save_dir = folder / "out";
  const NamedTarget target = make_named_target(*source, options, decisions);
  std::vector<std::string> names;
  for (const core::ShardedTensor& shard : target.shards) names.push_back(shard.key);
  EXPECT_THAT(names, ElementsAre("embed", "layers.2.b", "layers.02.w", "layers.2.w", "layers.10.w"));
}

TEST(NamedTarget, AdaptersKeepTheirFileNames) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(weight_stem_of(folder.path().string()), "");
  test::write_file(folder / "adapter_model.bin", "");
  EXPECT_EQ(weight_stem_of(folder.path().string()), "adapter_model");
}

}  // namespace
}  // namespace ms::convert
