#include "convert/megatron/master_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace ms::convert {
namespace {

using core::DType;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Bits of fp32 and of bf16.
bool round_to(const std::vector<uint32_t>& masters, const std::vector<uint16_t>& weights) {
  return round_to_weights(bytes_of(masters), DType::kFp32, bytes_of(weights), DType::kBf16);
}

TEST(MasterWeights, NearestWeightIsAccepted) {
  EXPECT_TRUE(round_to({0x3f800000, 0x3f807fff, 0x3f808001, 0xbf808001}, {0x3f80, 0x3f80, 0x3f81, 0xbf81}));
  EXPECT_FALSE(round_to({0x3f800000, 0x3f807fff}, {0x3f80, 0x3f81}));
  EXPECT_FALSE(round_to({0x3f808001}, {0x3f80}));
  EXPECT_FALSE(round_to({0x3f800000, 0x3f810000}, {0x3f81, 0x3f80}));
}

// To even, or away from zero, as when only the remainder of the rounding is stored.
TEST(MasterWeights, HalfwayAcceptsBothNeighbours) {
  for (const uint32_t sign : {0U, 0x80000000U}) {
    const auto upper = [&](uint32_t bits) { return static_cast<uint16_t>(bits | sign >> 16); };
    EXPECT_TRUE(round_to({sign | 0x3f808000}, {upper(0x3f80)}));
    EXPECT_TRUE(round_to({sign | 0x3f808000}, {upper(0x3f81)}));
    EXPECT_TRUE(round_to({sign | 0x3f818000}, {upper(0x3f82)}));
    EXPECT_FALSE(round_to({sign | 0x3f818000}, {upper(0x3f81)}));  // neither
    EXPECT_FALSE(round_to({sign | 0x3f808000}, {upper(0x3f82)}));
    EXPECT_TRUE(round_to({sign | 0x7f7f8000}, {upper(0x7f80)}));
  }
}

TEST(MasterWeights, Fp16AndFp32WeightsAreCompared) {
  const std::vector<float> masters = {1.0F, 0.1F, -3.0F};
  EXPECT_TRUE(round_to_weights(bytes_of(masters), DType::kFp32, bytes_of(masters), DType::kFp32));
  const std::vector<uint16_t> half = {0x3c00, 0x2e66, 0xc200}, other = {0x3c00, 0x2e67, 0xc200};
  EXPECT_TRUE(round_to_weights(bytes_of(masters), DType::kFp32, bytes_of(half), DType::kFp16));
  EXPECT_FALSE(round_to_weights(bytes_of(masters), DType::kFp32, bytes_of(other), DType::kFp16));
  EXPECT_TRUE(round_to_weights(bytes_of(half), DType::kFp16, bytes_of(half), DType::kFp16));
}

// A padded vocabulary has more masters than weights.
TEST(MasterWeights, SurplusMastersAreIgnored) {
  EXPECT_TRUE(round_to({0x3f800000, 0x12345678}, {0x3f80}));
  EXPECT_TRUE(round_to({0x3f800000}, {}));
}

}  // namespace
}  // namespace ms::convert
