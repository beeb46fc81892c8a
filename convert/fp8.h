// Dequantizes FP8 weights with a scale per block, as DeepSeek-V3 stores them: value x scale in fp32, rounded once.
//
// Source: the OCP 8-bit floating point specification (E4M3: bias 7, no infinities, S.1111.111 is NaN); for the scales
// DeepSeek-V3's inference/fp8_cast_bf16.py, which calls them "inverse" but multiplies by them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/bf16.h"

namespace ms::convert {

// "X.weight" has its scales in "X.weight_scale_inv".
inline constexpr std::string_view kScaleSuffix = "_scale_inv";

float e4m3_value(uint8_t bits);

// values: from one row, starting at column first_column. scales: one per block of block_columns columns, from column 0
// on. out: values.size() elements.
void dequantize_row(std::span<const std::byte> values, int64_t first_column, std::span<const float> scales,
                    int64_t block_columns, kernels::bf16* out);

}  // namespace ms::convert
