// Rotary position embedding, Su et al. 2021: pairs of a head's elements, turned by an angle that grows with position.
//
//   y1 = x1*cos - x2*sin,  y2 = x2*cos + x1*sin,  angle = position * inverse_frequency[i]
//
// Plain frequencies are base^(-2i/dim); RoPE scaling (train/model/rotary_embedding.h) changes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/rope.h"
#include "train/ops/context.h"

namespace ms::ops {

using kernels::RopePairs;

// cos and sin of every (position, pair), computed in fp32 step by step as Hugging Face transformers does, so that
// losses agree with it. One per rank; shared by all layers.
class RopeTable {
 public:
  // inverse_frequencies: [dim / 2], one per pair, so half of the rotated elements of a head. factor: multiplies cosines
  // and sines (YaRN's attention factor). Throws kInvalidArgument if there is no pair.
  RopeTable(core::Arena& arena, int64_t positions, std::span<const float> inverse_frequencies,
            RopePairs pairs = RopePairs::kHalves, double factor = 1);

  int64_t positions() const { return positions_; }
  int64_t dim() const { return dim_; }
  RopePairs pairs() const { return pairs_; }
  const float* cos() const { return cos_.data<float>(); }  // [positions, dim / 2]
  const float* sin() const { return sin_.data<float>(); }

 private:
  int64_t positions_, dim_;
  RopePairs pairs_;
  core::Tensor cos_, sin_;
};

// base^(-2i/dim) for i in [0, dim / 2), every step rounded to fp32 as transformers does: 1.0 / base ** (2i / dim).
// Throws kInvalidArgument if dim is odd or not positive.
std::vector<float> rope_inverse_frequencies(int64_t dim, double base);

// Rotates x [seq, batch, heads, d] in place, row s by position first_position + s; d >= table.dim(), what is beyond
// passes. inverse turns back: the gradient (and, with factor 1, the inverse). Throws kInvalidArgument past the table's
// end.
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table, int64_t first_position,
                  bool inverse);

// The same with positions[s] (context-parallel slices, packed documents); positions.size() == seq.
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table,
                  std::span<const int32_t> positions, bool inverse);

}  // namespace ms::ops
