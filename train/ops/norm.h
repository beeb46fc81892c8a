// RMSNorm, Zhang & Sennrich 2019: y = x * r * gamma with r = 1 / sqrt(mean(x^2) + epsilon), over the last axis.
//
// Rows are split over the pool; sums are fp32 (x and gamma fp32 or bf16, the same for both). Forward keeps r only.
#pragma once

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// Returns y, shape and dtype of x [.., h]. gamma: [h], dtype of x.
// rstd: receives r, fp32 [rows], which backward needs; may be null.
core::Tensor rms_norm(Context& context, const core::TensorView& x, const core::TensorView& gamma, double epsilon,
                      core::Tensor* rstd);

// Returns dx [.., h] = r * (gamma*dy - xhat * mean(gamma*dy*xhat)) [+ dresidual], with xhat = x * r, in x's dtype.
// rstd: what forward gave. dgamma: fp32 [h], += sum over rows of dy * xhat, in an order that does not depend on the
// number of threads. dresidual: shape and dtype of x, the gradient that arrives past the norm; may be null.
core::Tensor rms_norm_backward(Context& context, const core::TensorView& dy, const core::TensorView& x,
                               const core::TensorView& gamma, const core::TensorView& rstd,
                               const core::TensorView& dgamma, const core::TensorView* dresidual = nullptr);

}  // namespace ms::ops
