#include "convert/fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ms::convert {
namespace {

std::array<float, 256> make_table() {
  std::array<float, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) {
    const int exponent = static_cast<int>(bits >> 3 & 15), mantissa = static_cast<int>(bits & 7);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)  // subnormal: m / 8 x 2^-6
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if (exponent == 15 && mantissa == 7) value = std::numeric_limits<float>::quiet_NaN();
    table[bits] = (bits & 0x80) != 0 ? -value : value;
  }
  return table;
}

const std::array<float, 256> kTable = make_table();

}  // namespace

float e4m3_value(uint8_t bits) { return kTable[bits]; }

void dequantize_row(std::span<const std::byte> values, int64_t first_column, std::span<const float> scales,
                    int64_t block_columns, kernels::bf16* out) {
  const auto end = static_cast<int64_t>(values.size());
  for (int64_t i = 0; i < end;) {
    const int64_t block = (first_column + i) / block_columns;
    const int64_t stop = std::min(end, (block + 1) * block_columns - first_column);
    const float scale = scales[static_cast<size_t>(block)];
    for (; i < stop; ++i) out[i] = kernels::bf16(kTable[static_cast<uint8_t>(values[static_cast<size_t>(i)])] * scale);
  }
}

}  // namespace ms::convert
