// Weights in FP8 with a scale for each block, as DeepSeek-V3 stores them: value x scale, in fp32, rounded once.
//
// Source: the OCP 8-bit floating point specification (E4M3: bias 7, no infinities, S.1111.111 is NaN); DeepSeek-V3's
// inference/fp8_cast_bf16.py for the scales, which are called "inverse" and are multiplied by.
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

// values: of one row, from column first_column on. scales: of the row's blocks, block_columns columns each, from column
// 0 on. out: values.size() elements.
void dequantize_row(std::span<const std::byte> values, int64_t first_column, std::span<const float> scales,
                    int64_t block_columns, kernels::bf16* out);

}  // namespace ms::convert
