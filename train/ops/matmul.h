// The product of two matrices into memory that exists: some rows of a larger result, of which others are on their way
// between ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"

namespace ms::ops {

struct MatmulParams {
  bool transpose_b = false;                // b is stored [n, k] instead of [k, n]
  const core::TensorView* bias = nullptr;  // n elements of c's dtype
  std::optional<kernels::Activation> activation;
};

// c [.., n] = act(a b + bias), computed in fp32 and rounded once. a: [.., k], b: [k, n]; c's memory overlaps neither.
// a and c: fp32, bf16 or fp16; b: the same, or fp32. Adds its 2 m n k to context.flops.
void matmul_into(Context& context, const core::TensorView& a, const core::TensorView& b, const core::TensorView& c,
                 const MatmulParams& params = {});

}  // namespace ms::ops
