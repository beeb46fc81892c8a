// Grouped products with int8 and 4-bit integers, forward only (MindSpeed's quant_gmm and weight_quant_gmm). Groups are
// those of train/ops/grouped_matmul.h: rows [ends[i - 1], ends[i]) of x, each with one matrix [k, n] of the weight;
// ends do not decrease and end at m.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"

namespace ms::ops {

struct QuantGmmParams {
  const core::TensorView* per_token_scale = nullptr;  // fp32 [m]
  const core::TensorView* bias = nullptr;             // int32 [groups, n], added to the integer sums
  core::DType output_dtype =
      core::DType::kBf16;  // fp32, bf16, fp16; or int8, which excludes per_token_scale and activation
  std::optional<kernels::Activation> activation;
};

// y [m, n] = activation((x W_i + bias_i) * scale_i * per_token_scale), rounded once to nearest (int8: clamped to [-128,
// 127]). x: int8 [m, k], weight: int8 [groups, k, n], scale: fp32 [groups, n]. The integer sums are exact (VNNI if the
// CPU has it), so they are the same on every machine.
// Throws kInvalidArgument for ends that do not fit, a k above kernels::kMaxInt8Products, and for an int8 output with a
// per_token_scale or an activation.
core::Tensor quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                       const core::TensorView& scale, std::span<const int64_t> ends, const QuantGmmParams& params = {});

// The same into y, whose dtype is the output's.
void quant_gmm_into(Context& context, const core::TensorView& x, const core::TensorView& weight,
                    const core::TensorView& scale, std::span<const int64_t> ends, const core::TensorView& y,
                    const QuantGmmParams& params = {});

// Converts integer weights to real numbers: w -> (w + offset) * scale, in fp32.
struct Antiquant {
  core::TensorView scale;  // fp32, bf16 or fp16: [groups], [groups, n], or [groups, s, n] for s slices of k
  const core::TensorView* offset = nullptr;  // of scale's shape and dtype
};

// Number of integer weights per element: 1 for int8; 4-bit weights, lowest bits first, are 2 per uint8 and 8 per int32,
// as torch_npu's npu_convert_weight_to_int4pack stores them. A weight [.., n] therefore has the shape [.., n /
// packed_weights(dtype)]. 1 for any other dtype.
int64_t packed_weights(core::DType dtype);

// y [m, n] in x's dtype = activation(x antiquant(W_i) (+ bias[i])), rounded once. x: fp32, bf16 or fp16 [m, k], weight:
// [groups, k, n], int8 or packed 4-bit, bias: [groups, n] in x's dtype, or null. The weights of only one group at a
// time exist in fp32.
// (MindSpeed's npu_weight_quant_gmm supports int8 only; 4-bit weights are those of torch_npu's npu_grouped_matmul.)
core::Tensor weight_quant_gmm(Context& context, const core::TensorView& x, const core::TensorView& weight,
                              const Antiquant& antiquant, std::span<const int64_t> ends,
                              const core::TensorView* bias = nullptr,
                              std::optional<kernels::Activation> activation = {});

// The real numbers that weight_quant_gmm multiplies with: fp32 [groups, k, n]. slice: of k, the length of every slice
// with scales of its own but the last, which may be shorter; 0: all have the same, and there are as many as scales.
core::Tensor dequantized_weight(Context& context, const core::TensorView& weight, const Antiquant& antiquant,
                                int64_t slice = 0);

}  // namespace ms::ops
