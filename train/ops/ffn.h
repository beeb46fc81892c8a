// A whole MLP, or the MLPs of all experts of a rank; forward only (MindSpeed's npu_ffn): y = act(x W1 + b1) W2 + b2, or
// with a gated activation y = (act(g) * u) W2 + b2, where [g | u] = x W1 + b1.
//
// x: [m, k1]; w1: [groups, k1, n1]; w2: [groups, k2, n2] with k2 = n1, or n1 = 2 * k2 if gated. ends: the ends of the
// groups of rows of x, as in train/ops/grouped_matmul.h (MindSpeed's expert_tokens_index; group_ends computes them from
// expert_tokens). Without experts there is one group of all rows. Throws kInvalidArgument for ends that do not fit,
// kInternal for shapes.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"
#include "train/ops/quantized_matmul.h"

namespace ms::ops {

struct FfnActivation {
  kernels::Activation kind = kernels::Activation::kGelu;
  bool gated = false;  // geglu, swiglu, reglu
};

// x, weights, biases (b1 [groups, n1], b2 [groups, n2]; may be null) and y [m, n2] have one dtype: fp32, bf16 or fp16.
core::Tensor ffn(Context& context, const core::TensorView& x, const core::TensorView& w1, const core::TensorView& w2,
                 std::span<const int64_t> ends, const FfnActivation& activation, const core::TensorView* b1 = nullptr,
                 const core::TensorView* b2 = nullptr);

// For int8 x, w1 and w2: the integer sums of the first product are multiplied by deq_scale1; the activation's results
// are quantized to int8 as v * scale + offset; the integer sums of the second product are multiplied by deq_scale2.
struct FfnQuantization {
  core::TensorView deq_scale1;               // fp32 [groups, n1]
  core::TensorView scale;                    // fp32 [groups] or [groups, k2]
  const core::TensorView* offset = nullptr;  // fp32 [groups] or [groups, k2]
  core::TensorView deq_scale2;               // fp32 [groups, n2]
  core::DType output_dtype = core::DType::kBf16;
};

// b1 and b2: int32, added to the integer sums.
core::Tensor quant_ffn(Context& context, const core::TensorView& x, const core::TensorView& w1,
                       const core::TensorView& w2, std::span<const int64_t> ends, const FfnActivation& activation,
                       const FfnQuantization& quantization, const core::TensorView* b1 = nullptr,
                       const core::TensorView* b2 = nullptr);

// w1 and w2 are int8 or packed 4-bit (quantized_matmul.h); x and biases are floating-point.
core::Tensor weight_quant_ffn(Context& context, const core::TensorView& x, const core::TensorView& w1,
                              const core::TensorView& w2, std::span<const int64_t> ends,
                              const FfnActivation& activation, const Antiquant& antiquant1, const Antiquant& antiquant2,
                              const core::TensorView* b1 = nullptr, const core::TensorView* b2 = nullptr);

}  // namespace ms::ops
