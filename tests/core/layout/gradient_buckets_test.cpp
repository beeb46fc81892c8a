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
    EXPECT_EQ(cut.add({}, (i + 1 < starts.size() ? starts[i + 1] : kBuffer) - starts[i]).offset, starts[i]);
  cut.finish();
  ASSERT_EQ(cut.size(), kBuffer);
  for (const int64_t size : {0, 1, 300, 600, 5000}) {
    std::vector<int64_t> owned(3);
    for (const FlatRange& bucket : gradient_buckets(cut, {.overlapped = size > 0, .bucket_size = size})) {
      const std::vector<int64_t> counts = cut.owned_counts(bucket);
      EXPECT_EQ(counts[0] + counts[1] + counts[2], bucket.end - bucket.begin);
      for (size_t rank = 0; rank < 3; ++rank) owned[rank] += counts[rank];
    }
    EXPECT_EQ(owned, (std::vector<int64_t>{640, 640, 640})) << size;
  }
}

}  // namespace
}  // namespace ms::layout
