// Reduced curves keep their peaks; memory curves use the allocator's reports.
#include "profile/analysis/curves.h"

#include <gtest/gtest.h>

#include "profile/analysis/memory.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

TEST(Curves, ReducingKeepsThePeakOfEachPart) {
  std::vector<CurvePoint> points;
  for (int64_t i = 0; i < 100; ++i) points.push_back({i, i % 10 == 7 ? 1000 + i : i});
  const std::vector<CurvePoint> reduced = reduce_to_maxima(points, 10);
  ASSERT_EQ(reduced.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(reduced[i].ts, static_cast<int64_t>(10 * i + 7));
    EXPECT_EQ(reduced[i].value, static_cast<int64_t>(1000 + 10 * i + 7));
  }
  EXPECT_EQ(reduce_to_maxima(points, 100).size(), 100u) << "short curves stay as they are";
  EXPECT_TRUE(reduce_to_maxima({}, 10).empty());
}

TEST(Curves, MemoryPeakIsThatOfTheTable) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  maker.kernel("gemm", 0, 10'000);
  int64_t total = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t bytes = i == 613 ? 5'000'000 : 1000 + i;
    maker.memory(10 * i, 0x1000, bytes, total + bytes);
    maker.memory(10 * i + 5, 0x1000, -bytes, total);
  }
  maker.finish();
  const Store store = load({folder.path().string()}, {});
  const std::vector<Curve> curves = memory_curves(*store.ranks[0], 20);
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_LE(curves[0].points.size(), 20u);
  int64_t peak = 0;
  for (const CurvePoint& point : curves[0].points) peak = std::max(peak, point.value);
  EXPECT_EQ(peak, memory_timelines(*store.ranks[0]).begin()->second.peak_allocated);
  EXPECT_EQ(peak, 5'000'000);
}

TEST(Curves, QueueCountsLaunchesThatHaveNotBegun) {
  const test::TemporaryFolder folder;
  test::TraceMaker maker(folder.path(), 0, 1);
  for (uint32_t i = 0; i < 4; ++i) maker.launch(i + 1, 10 * i, 10 * i + 5);
  for (uint32_t i = 0; i < 4; ++i) maker.kernel("gemm", 100 + 10 * i, 105 + 10 * i, i + 1);
  maker.finish();
  const Store store = load({folder.path().string()}, {});
  const std::vector<Curve> curves = queue_curves(*store.ranks[0], view_devices(*store.ranks[0]), 100);
  ASSERT_EQ(curves.size(), 1u);
  std::vector<int64_t> lengths;
  for (const CurvePoint& point : curves[0].points) lengths.push_back(point.value);
  EXPECT_EQ(lengths, (std::vector<int64_t>{1, 2, 3, 4, 3, 2, 1, 0}));
  EXPECT_EQ(curves[0].unit, Curve::Unit::kLaunches);
}

}  // namespace
}  // namespace ms::profile
