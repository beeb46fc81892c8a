#include "core/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/tensor.h"

namespace ms::core {
namespace {

TEST(Arena, CountsBytesAndPeaksByTag) {
  Arena arena;
  {
    const Buffer a = arena.allocate(1000, MemoryTag::kAct);
    const Buffer b = arena.allocate(500, MemoryTag::kGrad);
    EXPECT_EQ(arena.current_bytes(MemoryTag::kAct), 1000);
    EXPECT_EQ(arena.total_peak_bytes(), 1500);
  }
  EXPECT_EQ(arena.current_bytes(MemoryTag::kAct), 0);
  EXPECT_EQ(arena.peak_bytes(MemoryTag::kAct), 1000);
  arena.reset_peaks();
  EXPECT_EQ(arena.peak_bytes(MemoryTag::kAct), 0);
}

TEST(Arena, ASharedBufferCountsOnceAndIsFreedByItsLastOwner) {
  Arena arena;
  Buffer first = arena.allocate(1000, MemoryTag::kAct);
  const std::byte* data = first.data();
  Buffer second = first.share();
  {
    const Buffer third = second.share();
    EXPECT_EQ(third.data(), data);
    EXPECT_EQ(third.size_bytes(), 1000);
    EXPECT_EQ(third.tag(), MemoryTag::kAct);
  }
  EXPECT_EQ(arena.current_bytes(MemoryTag::kAct), 1000);
  first.release();
  EXPECT_EQ(arena.current_bytes(MemoryTag::kAct), 1000);
  EXPECT_NE(arena.allocate(1000, MemoryTag::kAct).data(), data) << "the second still owns it";
  second = Buffer();
  EXPECT_EQ(arena.current_bytes(MemoryTag::kAct), 0);
  EXPECT_EQ(arena.allocate(1000, MemoryTag::kAct).data(), data);
  EXPECT_EQ(arena.peak_bytes(MemoryTag::kAct), 2000);
  EXPECT_THROW(Buffer().share(), Error);
}

TEST(Arena, ReusesFreedMemory) {
  Arena arena;
  const std::byte* first = nullptr;
  for (int64_t i = 0; i < 10; ++i) {
    const Buffer buffer = arena.allocate(3'000'000 - i * 100'000, MemoryTag::kMaster);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0U);
    if (i == 0) first = buffer.data();
    EXPECT_EQ(buffer.data(), first);
  }
  EXPECT_EQ(arena.system_allocations(), 1);
}

// Tensors whose sizes are powers of 2 must not compete for the same L1 lines, and freed memory must serve the next
// ones.
TEST(Arena, ActivationsStartAtVaryingPageOffsets) {
  if (BlockHeap::kFenced) GTEST_SKIP() << "blocks end at fences";
  Arena arena;
  std::set<uintptr_t> places;
  for (int i = 0; i < 32; ++i) {
    const Buffer a = arena.allocate(1 << 20, MemoryTag::kAct), b = arena.allocate(1 << 20, MemoryTag::kTmp);
    for (const Buffer* buffer : {&a, &b}) {
      const auto address = reinterpret_cast<uintptr_t>(buffer->data());
      EXPECT_EQ(address % 64, 0U);
      places.insert(address % 4096);
      std::fill_n(buffer->data(), buffer->size_bytes(), std::byte{1});
    }
  }
  EXPECT_EQ(places.size(), 4U);
  EXPECT_EQ(arena.system_allocations(), 2);
}

TEST(Arena, UseReportsHeldPeakAndPadding) {
  Arena arena;
  constexpr int64_t kMiB = 1 << 20;
  {
    const Buffer a = arena.allocate(3 * kMiB - 1000, MemoryTag::kAct), b = arena.allocate(kMiB, MemoryTag::kAct);
    const Buffer mine = arena.account(a.data(), 100 * kMiB, MemoryTag::kCkpt);  // held by its owner
  }
  const ArenaUse first = arena.use();
  EXPECT_EQ(first.peak_bytes, 4 * kMiB - 1000);
  EXPECT_GE(first.padding_bytes, 1000);
  EXPECT_GE(first.held_bytes, first.peak_bytes + first.padding_bytes);
  EXPECT_EQ(first.blocks, 2);
  EXPECT_EQ(first.block_bytes, first.peak_bytes);
  EXPECT_GE(first.growths, 1);
  EXPECT_LT(first.fragmentation(), 0.5);

  arena.reset_peaks();
  for (int i = 0; i < 3; ++i) arena.allocate(kMiB, MemoryTag::kTmp);
  const ArenaUse second = arena.use();
  EXPECT_EQ(second.peak_bytes, kMiB);
  EXPECT_EQ(second.blocks, 3);
  EXPECT_EQ(second.block_bytes, 3 * kMiB);
  EXPECT_EQ(second.growths, 0);
  EXPECT_EQ(second.held_bytes, first.held_bytes);
  EXPECT_GT(second.fragmentation(), 0.5);
}

TEST(Arena, MovedBuffersAreFreedOnce) {
  Arena arena;
  Buffer a = arena.allocate(64, MemoryTag::kTmp);
  Buffer b = std::move(a);
  a.release();  // NOLINT(bugprone-use-after-move): a moved buffer has nothing to free
  EXPECT_EQ(arena.current_bytes(MemoryTag::kTmp), 64);
  b = Buffer();
  EXPECT_EQ(arena.current_bytes(MemoryTag::kTmp), 0);
}

TEST(Tensor, ViewChecksShapeAndDtype) {
  Arena arena;
  const Tensor tensor = Tensor::zeros(arena, DType::kFp32, {4, 3}, MemoryTag::kTmp);
  EXPECT_EQ(tensor.view().rows(1, 3).shape(), (Dims{2, 3}));
  EXPECT_EQ(tensor.view().rows(1, 3).data<float>(), tensor.data<float>() + 3);
  EXPECT_THROW(tensor.view().rows(3, 5), Error);
  EXPECT_THROW(tensor.view().reshaped({5, 2}), Error);
  EXPECT_THROW(tensor.data<double>(), Error);
}

}  // namespace
}  // namespace ms::core
