#include "core/layout/state_chunks.h"

#include <gtest/gtest.h>

namespace ms::layout {
namespace {

TEST(StateChunks, CoverAllElementsInWholeBlocksOnce) {
  for (const int64_t elements : {0, 1, 1023, 1024, 1025, 16 * 1024, 99'999}) {
    for (const int64_t times : {1, 2, 3, 16, 1000}) {
      const StateChunks chunks(elements, times);
      int64_t end = 0;
      for (int64_t i = 0; i < chunks.count(); ++i) {
        EXPECT_EQ(chunks[i].begin, end);
        EXPECT_EQ(chunks[i].begin % 1024, 0) << "blocks of 4096 bytes";
        EXPECT_GT(chunks[i].end, chunks[i].begin);
        end = chunks[i].end;
      }
      EXPECT_EQ(end, elements);
      EXPECT_LE(chunks.count(), times);
    }
  }
  EXPECT_EQ(StateChunks(16 * 1024, 16).count(), 16);
  EXPECT_EQ(StateChunks(1025, 16).count(), 2);
}

TEST(StateChunks, ThreeAreInMemoryAtOnceAndNoneOverTheNext) {
  const StateChunks chunks(10 * 2048 - 5, 10);
  EXPECT_EQ(chunks.count(), 10);
  EXPECT_EQ(chunks.elements_in_memory(), 3 * 2048);
  for (int64_t i = 0; i < chunks.count(); ++i) {
    EXPECT_EQ(chunks.place_in_memory(i), i % 3 * 2048);
    EXPECT_LE(chunks.place_in_memory(i) + chunks[i].end - chunks[i].begin, chunks.elements_in_memory());
  }
  EXPECT_EQ(StateChunks(5000, 2).elements_in_memory(), 5000) << "two chunks are all of it";
  EXPECT_EQ(StateChunks(0, 2).elements_in_memory(), 0);
}

TEST(StateChunks, CountBytesOfMemoryAndBlocksOfTheTier) {
  const SwappedBytes moved = StateChunks(3000, 2).moved(3);
  EXPECT_EQ(moved.of_memory, 3 * 12'000);
  EXPECT_EQ(moved.of_tier, 3 * 12'288);
  EXPECT_EQ(moved.tensors, 3 * 2);
}

}  // namespace
}  // namespace ms::layout
