#include "convert/gguf/layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/convert.h"

namespace ms::convert {
namespace {

template <class T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Checked by hand: a header of one pair and two tensors.
TEST(GgufLayout, HeaderMatchesHandmadeBytes) {
  GgufValues values;
  values.set("a", uint32_t{7});
  const std::vector<GgufTensor> tensors = {{"m", {2, 3}, GgufType::kF16}, {"v", {5}, GgufType::kF32}};
  const GgufLayout layout = lay_out_gguf(values, tensors);
  const std::string& bytes = layout.header;
  EXPECT_EQ(bytes.substr(0, 4), "GGUF");
  EXPECT_EQ(at<uint32_t>(bytes, 4), 3U);
  EXPECT_EQ(at<uint64_t>(bytes, 8), 2U);   // tensors
  EXPECT_EQ(at<uint64_t>(bytes, 16), 1U);  // pairs
  EXPECT_EQ(at<uint64_t>(bytes, 24), 1U);  // of the key
  EXPECT_EQ(bytes[32], 'a');
  EXPECT_EQ(at<uint32_t>(bytes, 33), 4U);  // u32
  EXPECT_EQ(at<uint32_t>(bytes, 37), 7U);
  EXPECT_EQ(at<uint64_t>(bytes, 41), 1U);
  EXPECT_EQ(bytes[49], 'm');
  EXPECT_EQ(at<uint32_t>(bytes, 50), 2U);  // axes, the last first
  EXPECT_EQ(at<uint64_t>(bytes, 54), 3U);
  EXPECT_EQ(at<uint64_t>(bytes, 62), 2U);
  EXPECT_EQ(at<uint32_t>(bytes, 70), 1U);  // f16
  EXPECT_EQ(at<uint64_t>(bytes, 74), 0U);
  EXPECT_EQ(bytes[90], 'v');
  EXPECT_EQ(at<uint64_t>(bytes, 95), 5U);
  EXPECT_EQ(at<uint64_t>(bytes, 107), 32U);  // offset: 12 bytes, rounded up to a multiple of 32
  EXPECT_EQ(bytes.size(), 128U);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{128, 160}));
  EXPECT_EQ(layout.file_bytes, 192);
}

TEST(GgufLayout, Q8_0ErrorIsWithinHalfAStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(32 * 50);
  for (float& value : values) value = normal(random) * std::exp(4 * normal(random));
  std::fill_n(values.begin(), 32, 0.0f);
  std::vector<std::byte> packed(static_cast<size_t>(gguf_bytes(GgufType::kQ8_0, static_cast<int64_t>(values.size()))));
  EXPECT_EQ(packed.size(), 50U * 34);
  quantize_q8_0(values.data(), static_cast<int64_t>(values.size()), packed.data());
  for (size_t block = 0; block < 50; ++block) {
    kernels::fp16 half{};
    float scale = 0, largest = 0;
    std::memcpy(&half, packed.data() + block * 34, 2);
    kernels::convert(&half, &scale, 1);
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[block * 32 + i]));
    for (size_t i = 0; i < 32; ++i) {
      const auto q = static_cast<int8_t>(packed[block * 34 + 2 + i]);
      // half a step, and 127 steps of a scale that was rounded to 11 bits (or to fp16's smallest)
      const float bound = largest / 254 * 1.001f + 127 * (scale * 0x1p-11f + 0x1p-25f);
      EXPECT_LE(std::abs(static_cast<float>(q) * scale - values[block * 32 + i]), bound) << block << " " << i;
    }
  }
}

TEST(GgufLayout, NanBecomesZero) {
  std::vector<float> values(32, 1.0f);
  values[3] = std::nanf("");
  std::vector<std::byte> packed(34);
  quantize_q8_0(values.data(), 32, packed.data());
  EXPECT_EQ(packed[2 + 3], std::byte{0});
  EXPECT_EQ(packed[2], std::byte{127});
}

}  // namespace
}  // namespace ms::convert
