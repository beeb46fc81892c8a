#include "core/layout/sharding.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ms::layout {
namespace {

TEST(Sharding, RangesOfATensorCoverItOnceInBlocksOf64) {
  for (const int64_t numel : {0, 1, 63, 64, 1000, 12'345}) {
    for (const int dp : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int rank = 0; rank < dp; ++rank) {
        const FlatRange range = distributed_range(numel, dp, rank);
        EXPECT_EQ(range.begin, next);
        EXPECT_TRUE(range.end == numel || range.end % 64 == 0) << range.end;
        next = range.end;
      }
      EXPECT_EQ(next, numel) << dp << " ranks";
    }
  }
}

TEST(Sharding, BlocksOfABufferAreEqualAndCoverItOnce) {
  EXPECT_EQ(aligned_size(1), 64);
  EXPECT_EQ(aligned_size(128), 128);
  EXPECT_EQ(buffer_size(1000, 3), 1152);  // a multiple of 128 x 3
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(block_of_buffer(1152, 3, rank).begin, 384 * rank);
    EXPECT_EQ(block_of_buffer(1152, 3, rank).end, 384 * (rank + 1));
  }
  EXPECT_THROW(block_of_buffer(1000, 3, 0), core::Error);
}

}  // namespace
}  // namespace ms::layout
