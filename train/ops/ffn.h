// A whole MLP, of one model or of its experts, forward only (features.md 10, item 15; MindSpeed's npu_ffn):
// y = act(x W1 + b1) W2 + b2, or with a gated activation y = (act(g) * u) W2 + b2 of [g | u] = x W1 + b1.
//
// x: [m, k1]; w1: [groups, k1, n1]; w2: [groups, k2, n2] with k2 = n1, or n1 = 2 * k2 if gated. ends: as in
// train/ops/grouped_matmul.h, of rows of x (MindSpeed's expert_tokens_index; group_ends makes them of expert_tokens);
// one group of all rows where there are no experts. Throws kInvalidArgument for ends that do not fit, kInternal for
// shapes.
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

// x, weights and biases (b1 [groups, n1], b2 [groups, n2]; may be null) fp32, bf16 or fp16 alike; y [m, n2] too.
core::Tensor ffn(Context& context, const core::TensorView& x, const core::TensorView& w1, const core::TensorView& w2,
                 std::span<const int64_t> ends, const FfnActivation& activation, const core::TensorView* b1 = nullptr,
                 const core::TensorView* b2 = nullptr);

// x, w1 and w2 int8: reals of the first product are its integer sums times deq_scale1; the activation's are made int8
// again as v * scale + offset; those of the second are times deq_scale2.
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

// w1 and w2 int8 or packed 4-bit (quantized_matmul.h), x and biases real.
core::Tensor weight_quant_ffn(Context& context, const core::TensorView& x, const core::TensorView& w1,
                              const core::TensorView& w2, std::span<const int64_t> ends,
                              const FfnActivation& activation, const Antiquant& antiquant1, const Antiquant& antiquant2,
                              const core::TensorView* b1 = nullptr, const core::TensorView* b2 = nullptr);

}  // namespace ms::ops
