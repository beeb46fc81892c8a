#include "core/layout/gradient_buckets.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

std::vector<std::pair<int64_t, int64_t>> pairs(const std::vector<FlatRange>& ranges) {
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const FlatRange& range : ranges) result.emplace_back(range.begin, range.end);
  return result;
}

TEST(GradientBuckets, EndWithTheParameterThatFillsThem) {
  const std::vector<int64_t> starts = {0, 64, 192, 256, 512};
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(pairs(gradient_buckets(starts, 640, 0)), (Pairs{{0, 640}}));
  EXPECT_EQ(pairs(gradient_buckets(starts, 640, 641)), (Pairs{{0, 640}}));
  EXPECT_EQ(pairs(gradient_buckets(starts, 640, 1)), (Pairs{{512, 640}, {256, 512}, {192, 256}, {64, 192}, {0, 64}}));
  EXPECT_EQ(pairs(gradient_buckets(starts, 640, 129)), (Pairs{{256, 640}, {64, 256}, {0, 64}}))
      << "whole parameters, from the last one";
  EXPECT_EQ(pairs(gradient_buckets({}, 0, 10)), (Pairs{{0, 0}})) << "nothing trains";
}

TEST(GradientBuckets, SizeIsMegatrons) {
  EXPECT_EQ(bucket_elems({}, 8, 1000), 0) << "one bucket without overlap";
  EXPECT_EQ(bucket_elems({.overlapped = true}, 1, 1000), 0) << "and without replicas";
  EXPECT_EQ(bucket_elems({.overlapped = true}, 8, 1000), 40'000'000);
  EXPECT_EQ(bucket_elems({.overlapped = true}, 64, 1000), 64'000'000);
  EXPECT_EQ(bucket_elems({.overlapped = true, .bucket_size = 7}, 64, 1000), 7);
  EXPECT_EQ(bucket_elems({.overlapped = true, .num_buckets = 3}, 64, 1000), 333);
}

// What each rank owns is cut by the BufferCut, whatever the buckets are.
TEST(GradientBuckets, OwnersKeepTheirBlocks) {
  constexpr int64_t kBuffer = 128 * 3 * 5;
  const std::vector<int64_t> starts = {0, 64, 640, 704, 1280, 1728};
  BufferCut cut({.zero_stage = 1, .data_parallel_size = 3}, {.dp = 3});
  for (size_t i = 0; i < starts.size(); ++i)
    EXPECT_EQ(cut.add({}, (i + 1 < starts.size() ? starts[i + 1] : kBuffer) - starts[i]).offset, starts[i]) << "a unit";
  cut.finish();
  ASSERT_EQ(cut.size(), kBuffer);
  for (const int64_t size : {0, 1, 300, 600, 5000}) {
    const std::vector<FlatRange> buckets = gradient_buckets(cut, {.overlapped = size > 0, .bucket_size = size});
    ASSERT_EQ(buckets.size(), 1U) << "no rank has another part of a message than the others";
    EXPECT_EQ(cut.owned_counts(buckets[0]), (std::vector<int64_t>{640, 640, 640})) << size;
  }
}

// From the last layer on, whatever their size: a unit is a message, and all ranks have the same part of it.
TEST(GradientBuckets, OfZeroAreItsUnits) {
  for (const int stage : {1, 2, 3}) {
    BufferCut cut({.zero_stage = stage, .data_parallel_size = 2}, {.dp = 2});
    for (const int64_t layer : {-1, 0, 0, 1}) cut.add({.key = "a", .layer = layer}, 200);
    cut.finish();
    for (const int64_t size : {0, 1, 300, 5000}) {
      EXPECT_EQ(pairs(gradient_buckets(cut, {.overlapped = size > 0, .bucket_size = size})),
                (std::vector<std::pair<int64_t, int64_t>>{{768, 1024}, {256, 768}, {0, 256}}));
    }
  }
}

}  // namespace
}  // namespace ms::layout
