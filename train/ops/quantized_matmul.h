// Grouped products with integers of 8 and 4 bits, forward only (features.md 10, item 18; MindSpeed's quant_gmm and
// weight_quant_gmm). Groups are those of train/ops/grouped_matmul.h: rows [ends[i - 1], ends[i]) of x, a matrix [k, n]
// of the weight each; ends do not fall and end at m.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"

namespace ms::ops {

struct QuantGmmRule {
  const core::TensorView* per_token_scale = nullptr;  // fp32 [m]
  const core::TensorView* bias = nullptr;             // int32 [groups, n], added to the integer sums
  core::DType output_dtype = core::DType::kBf16;  // fp32, bf16, fp16; or int8, with neither of the next nor the first
  std::optional<kernels::Activation> activation;
};

// y [m, n] = activation((x W_i + bias_i) * scale_i * per_token_scale), rounded once, to the nearest (int8: within
// [-128, 127]). x: int8 [m, k], weight: int8 [groups, k, n], scale: fp32 [groups, n]. The integer sums are exact (VNNI
// where the CPU has it), so no bit of them depends on the machine.
// Throws kInvalidArgument for ends that do not fit, a k over kernels::kMostInt8Products, and for an int8 output with a
// per_token_scale or an activation.
core::Tensor quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                       const core::TensorView& scale, std::span<const int64_t> ends, const QuantGmmRule& rule = {});

// What makes real numbers of integer weights: w -> (w + offset) * scale, in fp32.
struct Antiquant {
  core::TensorView scale;  // fp32, bf16 or fp16: [groups], [groups, n], or [groups, s, n] of s slices of k
  const core::TensorView* offset = nullptr;  // of scale's shape and dtype
};

// Integer weights that lie side by side in an element: 1 of int8; 4-bit ones, the lowest bits first, are 2 in a uint8
// and 8 in an int32, as torch_npu's npu_convert_weight_to_int4pack leaves them. So a weight [.., n] is of shape
// [.., n / packed_weights(dtype)]. 1 for any other dtype.
int64_t packed_weights(core::DType dtype);

// y [m, n] in x's dtype = activation(x antiquant(W_i) (+ bias[i])), rounded once. x: fp32, bf16 or fp16 [m, k], weight:
// [groups, k, n], int8 or packed 4-bit, bias: [groups, n] in x's dtype, or null. The weights of one group at a time
// exist in fp32.
// (MindSpeed's npu_weight_quant_gmm takes int8 alone; 4-bit ones are torch_npu's npu_grouped_matmul's.)
core::Tensor weight_quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                              const Antiquant& antiquant, std::span<const int64_t> ends,
                              const core::TensorView* bias = nullptr,
                              std::optional<kernels::Activation> activation = {});

}  // namespace ms::ops
