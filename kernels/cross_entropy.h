// Local parts of a (vocabulary-parallel) softmax cross entropy, one row of fp32 logits at a time.
#pragma once

#include <cstdint>

namespace ms::kernels {

// The largest of n logits; -inf when n is 0. NaN logits are ignored here and make row_sum_exp NaN.
float row_max(const float* logits, int64_t n);

// Sum of exp(logit - max); the sum is NaN if any logit is.
float row_sum_exp(const float* logits, int64_t n, float max);

// In place: logits become scale * exp(logit - max) / sum_exp; at `label`, if it is in [0, n), scale is subtracted.
void row_cross_entropy_backward(float* logits, int64_t n, float max, float sum_exp, int64_t label, float scale);

}  // namespace ms::kernels
