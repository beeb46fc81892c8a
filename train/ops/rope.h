// Rotary position embedding (Su et al. 2021): rotates pairs of a head's elements by an angle that grows with position.
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

// Positions that follow one another.
struct PositionSpan {
  int64_t first = 0, count = 0;
};

// cos and sin of (position, pair), computed in fp32 with the same sequence of operations as Hugging Face transformers,
// so that losses agree. One table per rank, shared by all layers, of the positions that the rank has.
class RopeTable {
 public:
  // positions: in ascending order, one row for each. inverse_frequencies: [dim / 2], one per pair, where dim is the
  // number of rotated elements of a head. factor: multiplies cosines and sines (YaRN's attention factor). Throws
  // kInvalidArgument if there is no pair.
  RopeTable(core::Arena& arena, std::vector<PositionSpan> positions, std::span<const float> inverse_frequencies,
            RopePairs pairs = RopePairs::kHalves, double factor = 1);
  // Of positions 0 to `positions` - 1.
  RopeTable(core::Arena& arena, int64_t positions, std::span<const float> inverse_frequencies,
            RopePairs pairs = RopePairs::kHalves, double factor = 1)
      : RopeTable(arena, std::vector<PositionSpan>{{0, positions}}, inverse_frequencies, pairs, factor) {}

  // In which row of cos() and sin() a position is. Throws kInvalidArgument for one behind the last that the table has,
  // kInternal for any other that it does not have.
  int64_t row_of(int64_t position) const;
  int64_t rows() const { return cos_.dim(0); }
  int64_t dim() const { return dim_; }
  RopePairs pairs() const { return pairs_; }
  const float* cos() const { return cos_.data<float>(); }  // [rows, dim / 2]
  const float* sin() const { return sin_.data<float>(); }

 private:
  std::vector<PositionSpan> positions_;
  int64_t dim_;
  RopePairs pairs_;
  core::Tensor cos_, sin_;
};

// base^(-2i/dim) for i in [0, dim / 2), with each step rounded to fp32 as in transformers: 1.0 / base ** (2i / dim).
// divisors: of the frequencies, [dim / 2] (longrope), or empty. Throws kInvalidArgument if dim is odd or not positive.
std::vector<float> rope_inverse_frequencies(int64_t dim, double base, std::span<const double> divisors = {});

// Rotates x [seq, batch, heads, d] in place, row s by position first_position + s: of each head the table.dim()
// elements from first_element on; the others are not changed. inverse rotates back, which is the gradient (and, with
// factor 1, the inverse). Throws as RopeTable::row_of.
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table, int64_t first_position,
                  bool inverse, int64_t first_element = 0);

// Same, with position positions[s * batch + b] for row s of sample b (context-parallel slices, packed documents).
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table,
                  std::span<const int32_t> positions, bool inverse, int64_t first_element = 0);

}  // namespace ms::ops
