// Random numbers of tokens that depend on which token it is, not on where it is computed, as those of
// kernels/dropout.h: for the jitter of routers, for random logits, and for experts that are drawn.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

struct TokenNoise {
  uint64_t key = 0;            // of the run's seed and the place in the model
  int64_t first_position = 0;  // of the first token
  // Their numbers in the run: token t is of sample t % batch, at position first_position + t / batch.
  std::span<const int64_t> samples;
};

// x [tokens, n] *= 1 + eps * r, r uniform in (-1, 1); fp32, bf16 or fp16, rounded once.
void jitter_inplace(Context& context, const core::TensorView& x, double eps, const TokenNoise& noise);

// x, fp32 [tokens, n]: normal numbers of mean 0 and standard deviation 1.
void fill_normal(Context& context, const core::TensorView& x, const TokenNoise& noise);

// x, fp32 [tokens, n]: uniform in (0, 1), without either.
void fill_uniform(Context& context, const core::TensorView& x, const TokenNoise& noise);

}  // namespace ms::ops
