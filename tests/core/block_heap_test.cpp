#include "core/block_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/rng.h"

namespace ms::core {
namespace {

constexpr int64_t kPage = 4096;

BlockHeap pages() { return BlockHeap(kPage, 0.5, BlockHeap::Pages::kHuge); }

TEST(BlockHeap, RoundsSizesUpToTheGranularity) {
  BlockHeap heap = pages();
  for (const int64_t size : {int64_t{0}, int64_t{1}, kPage - 1, kPage, kPage + 1}) {
    std::byte* const block = heap.take(size);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kPage, 0U);
    EXPECT_EQ(heap.block_bytes(size) % kPage, 0);
    EXPECT_GE(heap.block_bytes(size), std::max(size, kPage));
    std::memset(block, 1, static_cast<size_t>(size));
  }
}

TEST(BlockHeap, MergesFreeNeighboursForAnySize) {
  BlockHeap heap = pages();
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(heap.take(3 << 20));
  const int64_t held = heap.held_bytes(), growths = heap.growths();
  for (const size_t i : {1U, 5U, 3U, 4U, 2U}) heap.give_back(blocks[i], 3 << 20);
  EXPECT_EQ(heap.take(15 << 20), blocks[1]);
  EXPECT_EQ(heap.held_bytes(), held);
  EXPECT_EQ(heap.growths(), growths);
}

TEST(BlockHeap, TakesTheSmallestFittingPartAndTheEndLast) {
  BlockHeap heap = pages();
  std::vector<std::byte*> blocks;
  for (const int64_t size : {5, 1, 3, 1, 4, 1}) blocks.push_back(heap.take(size << 20));
  heap.give_back(blocks[0], 5 << 20);
  heap.give_back(blocks[2], 3 << 20);
  heap.give_back(blocks[4], 4 << 20);
  EXPECT_EQ(heap.take(3 << 20), blocks[2]);
  EXPECT_EQ(heap.take(3 << 20), blocks[4]);
  EXPECT_EQ(heap.take(3 << 20), blocks[0]);
  EXPECT_GT(heap.take(3 << 20), blocks[5]);
}

TEST(BlockHeap, ReturnsNullWithoutSystemMemory) {
  BlockHeap heap = pages();
  EXPECT_EQ(heap.take(int64_t{1} << 46), nullptr);
  EXPECT_EQ(heap.take(INT64_MAX), nullptr);
  EXPECT_EQ(heap.held_bytes(), 0);
  EXPECT_NE(heap.take(1), nullptr);
}

// Takes and frees blocks in random order, each filled with its own pattern. A second identical pass must get the same
// blocks and nothing from the system.
TEST(BlockHeap, BlocksNeverOverlapAndSecondPassRepeatsTheFirst) {
  BlockHeap heap = pages();
  struct Block {
    std::byte* data;
    int64_t size;
    int mark;
  };
  std::vector<std::byte*> first;
  int64_t growths = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const Rng rng(7, "block heap");
    std::vector<Block> live;
    std::vector<std::byte*> given;
    const auto give_back = [&](size_t i) {
      for (const int64_t at : {int64_t{0}, live[i].size / 2, live[i].size - 1}) {
        ASSERT_EQ(static_cast<int>(live[i].data[at]), live[i].mark);
      }
      heap.give_back(live[i].data, live[i].size);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    };
    for (uint64_t draw = 0; draw < 4000; draw += 2) {
      if (!live.empty() && rng.below(draw, 5) < 2) {
        give_back(static_cast<size_t>(rng.below(draw + 1, live.size())));
      } else {
        const auto size = static_cast<int64_t>(1 + rng.below(draw + 1, 200'000));
        Block block{heap.take(size), size, static_cast<int>(draw / 2 % 251)};
        ASSERT_NE(block.data, nullptr);
        std::memset(block.data, block.mark, static_cast<size_t>(size));
        given.push_back(block.data);
        live.push_back(block);
      }
      if (live.size() > 200) give_back(0);
    }
    while (!live.empty()) give_back(live.size() - 1);
    if (pass == 0) {
      first = given;
      growths = heap.growths();
      EXPECT_LT(heap.held_bytes(), int64_t{32} << 20);  // 200 blocks of 100 KB on average take 20 MB
    } else {
      EXPECT_EQ(given, first);
      EXPECT_EQ(heap.growths(), growths);
    }
  }
}

}  // namespace
}  // namespace ms::core
