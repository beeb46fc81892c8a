#include "core/io/chunk_codec.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/bf16.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

// Normally distributed weights with standard deviation 0.02, as T.
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
  ChunkEncoder encoder;
  std::vector<std::byte> back(bytes.size());
  const auto [frame, raw] = encoder.encode(bytes, bytes.size(), item);
  if (raw) {
    EXPECT_EQ(frame.data(), bytes.data());
    return 1;
  }
  decompress_chunk(frame, item, back);
  EXPECT_EQ(back, bytes);
  // A standard frame: zstd knows its content size, and decodes the shuffled bytes.
  EXPECT_EQ(ZSTD_getFrameContentSize(frame.data(), frame.size()), bytes.size());
  std::vector<std::byte> shuffled(bytes.size());
  EXPECT_EQ(ZSTD_decompress(shuffled.data(), shuffled.size(), frame.data(), frame.size()), bytes.size());
  const size_t n = bytes.size() / static_cast<size_t>(item);
  for (size_t i = 0; i < n; i += 97) EXPECT_EQ(shuffled[i], bytes[i * static_cast<size_t>(item)]);
  return static_cast<double>(bytes.size()) / static_cast<double>(frame.size());
}

TEST(ChunkCodec, WeightsCompressByTheirExponents) {
  EXPECT_GE(ratio(weights<float>(1 << 21), 4), 1.19);
  EXPECT_GE(ratio(weights<kernels::bf16>(1 << 22), 2), 1.47);
}

TEST(ChunkCodec, AnySizeRoundTrips) {
  for (const int item : {1, 2, 4, 8}) {
    for (const int64_t n : {1, 2, 63, 1000, 131072, 131073, 300000}) {
      std::vector<std::byte> bytes(static_cast<size_t>(n * item));
      EXPECT_GE(ratio(bytes, item), n * item > 100 ? 5 : 1);  // zeros
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(i % static_cast<size_t>(item) == 0 ? i * 7919 >> 5 : 3);
      EXPECT_GE(ratio(bytes, item), 1);
    }
  }
  // bf16 values in fp32: two planes of zeros and one that does not compress.
  auto wide = weights<float>(1 << 20);
  for (size_t i = 0; i < wide.size(); i += 4) wide[i] = wide[i + 1] = std::byte{0};
  EXPECT_GE(ratio(wide, 4), 2.5);
}

TEST(ChunkCodec, NoiseIsStoredRaw) {
  const Rng rng(2, "noise");
  std::vector<std::byte> bytes(1 << 20);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng.bits(i));
  ChunkEncoder encoder;
  EXPECT_TRUE(encoder.encode(bytes, bytes.size(), 4).raw);
  EXPECT_TRUE(encoder.encode({}, 0, 4).raw);
  const auto filled = encoder.encode(bytes, bytes.size() + 40000, 4);
  EXPECT_TRUE(filled.raw);
  ASSERT_EQ(filled.bytes.size(), bytes.size() + 40000);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), filled.bytes.begin()));
  EXPECT_EQ(std::count(filled.bytes.begin() + (1 << 20), filled.bytes.end(), std::byte{0}), 40000);
}

TEST(ChunkCodec, ShortChunkIsPaddedWithZeros) {
  ChunkEncoder encoder, other;
  for (const int64_t n : {1, 2500, 131071, 131072, 200000}) {
    const auto bytes = weights<float>(n);
    encoder.encode(weights<float>(300000), 1200000, 4);  // its remains must not show
    const auto short_one = encoder.encode(bytes, 1200000, 4);
    ASSERT_FALSE(short_one.raw);
    std::vector<std::byte> back(1200000), expected = bytes;
    decompress_chunk(short_one.bytes, 4, back);
    expected.resize(back.size());
    EXPECT_EQ(back, expected) << n;
    EXPECT_LE(static_cast<int64_t>(short_one.bytes.size()), 4 * n + 20000) << n;  // zeros take little space
  }
}

// Frames written by other programs: one zstd run, which may refer to any earlier data.
TEST(ChunkCodec, DecodesFramesOfOtherEncoders) {
  const Rng rng(3, "noise");
  for (const size_t repeat : {size_t{300000}, size_t{131072}}) {
    std::vector<std::byte> shuffled(600000);  // planes of 300000: noise, then repetitions
    for (size_t i = 0; i < shuffled.size(); ++i) {
      shuffled[i] = i < repeat ? static_cast<std::byte>(rng.bits(i)) : shuffled[i - repeat];
    }
    std::vector<std::byte> frame(ZSTD_compressBound(shuffled.size())), out(shuffled.size());
    frame.resize(ZSTD_compress(frame.data(), frame.size(), shuffled.data(), shuffled.size(), 1));
    EXPECT_LT(frame.size(), size_t{350000});
    decompress_chunk(frame, 2, out);
    for (size_t i = 0; i < 300000; ++i) {
      ASSERT_EQ(out[2 * i], shuffled[i]);
      ASSERT_EQ(out[2 * i + 1], shuffled[300000 + i]);
    }
  }
}

TEST(ChunkCodec, DamagedOrWrongSizedFramesAreCorruptData) {
  const auto bytes = weights<float>(10000);
  ChunkEncoder encoder;
  std::vector<std::byte> out(bytes.size());
  const auto compressed = encoder.encode(bytes, bytes.size(), 4).bytes;
  const std::vector<std::byte> frame(compressed.begin(), compressed.end());
  for (size_t length = 0; length < frame.size(); length += 61) {
    EXPECT_EQ(test::code_of([&] { decompress_chunk(std::span(frame).first(length), 4, out); }),
              ErrorCode::kCorruptData);
  }
  std::vector<std::byte> lie = frame;
  lie[8] = std::byte{0x7f};  // claims a content of 2 GiB
  EXPECT_EQ(test::code_of([&] { decompress_chunk(lie, 4, out); }), ErrorCode::kCorruptData);
  out.resize(out.size() - 4);
  EXPECT_EQ(test::code_of([&] { decompress_chunk(frame, 4, out); }), ErrorCode::kCorruptData);
}

}  // namespace
}  // namespace ms::core
