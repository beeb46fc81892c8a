// AdamW on flat fp32 buffers, and the sum of squares that gradient clipping needs.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/fp32_halves.h"

namespace ms::kernels {

struct AdamwScalars {
  float lr, eps, weight_decay, grad_scale;
  float beta1, one_minus_beta1, beta2, one_minus_beta2;  // each rounded from the exact value
  float bias_correction1, bias_correction2;              // 1 - beta1^step, 1 - beta2^step
  float ema_decay = 0, one_minus_ema_decay = 1;          // for ema
};

// g = grad * grad_scale; m = beta1*m + one_minus_beta1*g; v = beta2*v + one_minus_beta2*g^2;
// p -= lr * (m / bias_correction1 / (sqrt(v / bias_correction2) + eps) + weight_decay * p)
// (Loshchilov & Hutter 2019, in the order of apex's FusedAdam with adam_w_mode=1.) n elements each.
// param: receives p rounded to bf16; may be null. grad is set to 0 so that the next step can accumulate into it: free
// here, while a separate pass takes a quarter of the update's time. ema = ema_decay*ema + one_minus_ema_decay*p with
// the new p; may be null.
void adamw(float* p, float* grad, float* m, float* v, bf16* param, float* ema, int64_t n, const AdamwScalars& scalars);

// AdamW without ema for p stored as halves, whose high halves are the bf16 weights; p.marks is v.
void adamw(const Fp32Halves& p, float* grad, float* m, int64_t n, const AdamwScalars& scalars);

// Sum of squares of n elements in double. The summation order depends only on n and the instruction set.
double sum_of_squares(const float* values, int64_t n);

}  // namespace ms::kernels
