#include "core/io/chunk_codec.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/bf16.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

// Normal weights of standard deviation 0.02, as T.
template <class T>
std::vector<std::byte> weights(int64_t n) {
  const Rng rng(1, "weights");
  std::vector<std::byte> bytes(static_cast<size_t>(n) * sizeof(T));
  for (int64_t i = 0; i < n; ++i) {
    const T value(0.02F * rng.normal(static_cast<uint64_t>(i)));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

double ratio(const std::vector<std::byte>& bytes, int item) {
  std::vector<std::byte> scratch, back(bytes.size());
  const auto frame = compress_chunk(bytes, item, scratch);
  if (frame.empty()) return 1;
  decompress_chunk(frame, item, back);
  EXPECT_EQ(back, bytes);
  // A standard frame: zstd says its size, and finds the shuffled bytes in it.
  EXPECT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), bytes.size());
  std::vector<std::byte> shuffled(bytes.size());
  EXPECT_EQ(ZSTD_decompress(shuffled.data(), shuffled.size(), frame.data(), frame.size()), bytes.size());
  const size_t n = bytes.size() / static_cast<size_t>(item);
  for (size_t i = 0; i < n; i += 97) EXPECT_EQ(shuffled[i], bytes[i * static_cast<size_t>(item)]);
  return static_cast<double>(bytes.size()) / static_cast<double>(frame.size());
}

TEST(ChunkCodec, WeightsShrinkByTheirExponents) {
  EXPECT_GE(ratio(weights<float>(1 << 21), 4), 1.19);
  EXPECT_GE(ratio(weights<kernels::bf16>(1 << 22), 2), 1.47);
}

TEST(ChunkCodec, AnySizeComesBack) {
  for (const int item : {1, 2, 4, 8}) {
    for (const int64_t n : {1, 2, 63, 1000, 131072, 131073, 300000}) {
      std::vector<std::byte> bytes(static_cast<size_t>(n * item));
      EXPECT_GE(ratio(bytes, item), n * item > 100 ? 5 : 1);  // zeros
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(i % static_cast<size_t>(item) == 0 ? i * 7919 >> 5 : 3);
      EXPECT_GE(ratio(bytes, item), 1);
    }
  }
  // bf16 values in fp32: two planes of zeros below one that does not compress.
  auto wide = weights<float>(1 << 20);
  for (size_t i = 0; i < wide.size(); i += 4) wide[i] = wide[i + 1] = std::byte{0};
  EXPECT_GE(ratio(wide, 4), 2.5);
}

TEST(ChunkCodec, NoiseIsLeftAsItIs) {
  const Rng rng(2, "noise");
  std::vector<std::byte> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng.bits(i));
  std::vector<std::byte> scratch;
  EXPECT_TRUE(compress_chunk(bytes, 4, scratch).empty());
  EXPECT_TRUE(compress_chunk({}, 4, scratch).empty());
}

TEST(ChunkCodec, DamageAndLiesAreCorruptData) {
  const auto bytes = weights<float>(10000);
  std::vector<std::byte> scratch, out(bytes.size());
  const auto compressed = compress_chunk(bytes, 4, scratch);
  const std::vector<std::byte> frame(compressed.begin(), compressed.end());
  for (size_t length = 0; length < frame.size(); length += 61) {
    EXPECT_EQ(test::code_of([&] { decompress_chunk(std::span(frame).first(length), 4, out); }),
              ErrorCode::kCorruptData);
  }
  std::vector<std::byte> lie = frame;
  lie[8] = std::byte{0x7f};  // a content of 2 GiB
  EXPECT_EQ(test::code_of([&] { decompress_chunk(lie, 4, out); }), ErrorCode::kCorruptData);
  out.resize(out.size() - 4);
  EXPECT_EQ(test::code_of([&] { decompress_chunk(frame, 4, out); }), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::core
