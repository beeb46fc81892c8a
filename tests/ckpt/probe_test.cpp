#include "ckpt/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "ckpt/reader.h"
#include "core/error.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

TEST(ProbeTest, MeasuresRatesAndLeavesNoFile) {
  const test::TemporaryFolder folder;
  const auto path =
      test::write_checkpoint(folder.path() / "a", {2, 1, 1, 0}, test::small_model(127), test::mixed_roles(), 5);
  const auto source = open_native(path);
  int64_t largest = 0;
  for (size_t i = 0; i < source->shards().size(); ++i) largest = std::max(largest, source->shards().size_bytes(i));
  const auto below = folder.path() / "new" / "root";
  for (const bool compress : {false, true}) {
    const ProbeReport report = probe(*source, below, {2, compress, core::WritePath::kBuffered});
    EXPECT_GE(report.bytes_read, largest);
    EXPECT_LE(report.bytes_read, kProbeBytes);
    EXPECT_GT(report.read_bytes_per_s, 0);
    EXPECT_GT(report.write_bytes_per_s, 0);
    EXPECT_DOUBLE_EQ(report.seconds_for(1000), 1000 / std::min(report.read_bytes_per_s, report.write_bytes_per_s));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "new"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  EXPECT_EQ(probe(*source, {}, {}).write_bytes_per_s, 0);
}

TEST(ProbeTest, FindsDamage) {
  const test::TemporaryFolder folder;
  const auto path = test::write_checkpoint(folder.path() / "a", {}, test::small_model(127), test::mixed_roles(), 5);
  const auto source = open_native(path);
  std::filesystem::resize_file(path / "rank_00000.h5", 100);
  EXPECT_THROW(probe(*source, {}, {}), core::Error);
}

}  // namespace
}  // namespace ms::ckpt
