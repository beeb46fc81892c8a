#include "core/io/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <utility>

namespace ms::core {
namespace {

TEST(AlignedBufferTest, IsAlignedForODirect) {
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
    const AlignedBuffer buffer(size);
    EXPECT_EQ(buffer.size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u) << size;
    buffer.data()[0] = buffer.data()[size - 1] = std::byte{1};
  }
}

TEST(AlignedBufferTest, DefaultIsEmpty) {
  EXPECT_EQ(AlignedBuffer().data(), nullptr);
  EXPECT_EQ(AlignedBuffer().size_bytes(), 0u);
}

TEST(AlignedBufferTest, NeedGrowsTheBuffer) {
  AlignedBuffer buffer;
  buffer.need(100);
  std::byte* const first = buffer.data();
  first[99] = std::byte{7};
  buffer.need(50);
  EXPECT_EQ(buffer.data(), first);
  EXPECT_EQ(buffer.data()[99], std::byte{7});
  buffer.need(size_t{3} << 20);
  EXPECT_EQ(buffer.size_bytes(), size_t{3} << 20);
  buffer.data()[buffer.size_bytes() - 1] = std::byte{1};
}

TEST(AlignedBufferTest, ThrowsBadAllocWithoutMemory) {
  EXPECT_THROW(AlignedBuffer(std::numeric_limits<size_t>::max() / 2), std::bad_alloc);
}

}  // namespace
}  // namespace ms::core
