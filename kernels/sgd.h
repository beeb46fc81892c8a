// Stochastic gradient descent with momentum on flat fp32 buffers.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"

namespace ms::kernels {

struct SgdScalars {
  float lr, momentum, weight_decay, grad_scale;
};

// g = grad * grad_scale + weight_decay * p; m = momentum * m + g; p -= lr * m
// (torch.optim.SGD without dampening and nesterov: from m = 0 the first step gives m = g, as torch's.) n elements each.
// m: null without momentum, of which p -= lr * g is left. param: receives p rounded to bf16; may be null. grad is set
// to 0, as by adamw.
void sgd(float* p, float* grad, float* m, bf16* param, int64_t n, const SgdScalars& scalars);

}  // namespace ms::kernels
