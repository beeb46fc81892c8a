// RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) over the last axis, and their gradients.
//
//   RMSNorm    y = x * r * g             r = 1 / sqrt(mean(x^2) + epsilon)
//   LayerNorm  y = (x - m) * r * g + b   m = mean(x), r = 1 / sqrt(mean((x - m)^2) + epsilon)
//
// with g = gamma, or 1 + gamma if weights are centred on zero (gamma_offset 1; Megatron's --apply-layernorm-1p).
// x and weights have one dtype, fp32, bf16 or fp16; sums are fp32. Rows are split over the pool. Sums over rows are
// made in an order that does not depend on the number of threads.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// What backward needs from forward besides the input: fp32 [rows] each.
struct NormStatistics {
  core::Tensor mean;  // LayerNorm only
  core::Tensor rstd;
};

struct NormParams {
  double epsilon = 1e-5;
  double gamma_offset = 0;
};

// Returns y, shape and dtype of x [.., h]. gamma: [h], dtype of x.
// rstd: receives r, fp32 [rows], which backward needs; may be null.
core::Tensor rms_norm(Context& context, const core::TensorView& x, const core::TensorView& gamma,
                      const NormParams& params, core::Tensor* rstd);

// Returns dx [.., h] = r * (g*dy - xhat * mean(g*dy*xhat)) [+ dresidual], with xhat = x * r, in x's dtype.
// rstd: from forward. dgamma: fp32 [h], += sum over rows of dy * xhat. dresidual: shape and dtype of x, the gradient of
// the residual path that bypasses the norm; may be null. into: memory for dx, of x's shape and dtype (else
// core::Error); may be that of dy, which is then overwritten. Undefined: dx is allocated.
core::Tensor rms_norm_backward(Context& context, const core::TensorView& dy, const core::TensorView& x,
                               const core::TensorView& gamma, const NormParams& params, const core::TensorView& rstd,
                               const core::TensorView& dgamma, const core::TensorView* dresidual = nullptr,
                               core::Tensor into = {});

// Returns y, shape and dtype of x [.., h]. gamma, beta: [h], dtype of x. statistics: filled; may be null.
core::Tensor layer_norm(Context& context, const core::TensorView& x, const core::TensorView& gamma,
                        const core::TensorView& beta, const NormParams& params, NormStatistics* statistics);

// Returns dx [.., h] = r * (g*dy - mean(g*dy) - xhat * mean(g*dy*xhat)) [+ dresidual], with xhat = (x - m) * r.
// dgamma, dbeta: fp32 [h], += sums over rows of dy * xhat and of dy. dresidual, into: as in rms_norm_backward.
core::Tensor layer_norm_backward(Context& context, const core::TensorView& dy, const core::TensorView& x,
                                 const core::TensorView& gamma, const NormParams& params,
                                 const NormStatistics& statistics, const core::TensorView& dgamma,
                                 const core::TensorView& dbeta, const core::TensorView* dresidual = nullptr,
                                 core::Tensor into = {});

}  // namespace ms::ops
