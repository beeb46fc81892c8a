// The local pieces of a (vocabulary-parallel) softmax cross entropy, one row of logits at a time, fp32.
#pragma once

#include <cstdint>

namespace ms::kernels {

// The greatest of n logits; -inf when n is 0. NaN logits are passed over here and surface in row_sum_exp.
float row_max(const float* logits, int64_t n);

// Sum of exp(logit - max); the sum is NaN if any logit is.
float row_sum_exp(const float* logits, int64_t n, float max);

// In place: logits become scale * exp(logit - max) / sum_exp, minus scale at `label` if that is in [0, n).
void row_cross_entropy_backward(float* logits, int64_t n, float max, float sum_exp, int64_t label, float scale);

}  // namespace ms::kernels
