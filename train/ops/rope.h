// Rotary position embedding, Su et al. 2021, half-rotation mode (Megatron, Hugging Face): element i of the first half
// of a head pairs with element i of the second.
//
//   y1 = x1*cos - x2*sin,  y2 = x2*cos + x1*sin,  angle = position / base^(2i/dim)
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// cos and sin of every (position, pair), computed in fp32 step by step as Hugging Face transformers does, so that
// losses agree with it. One per rank; shared by all layers.
class RopeTable {
 public:
  // dim: even, the rotated elements of a head. Throws kInvalidArgument if odd or not positive.
  RopeTable(core::Arena& arena, int64_t positions, int64_t dim, double base);

  int64_t positions() const { return positions_; }
  int64_t dim() const { return dim_; }
  const float* cos() const { return cos_.data<float>(); }  // [positions, dim / 2]
  const float* sin() const { return sin_.data<float>(); }

 private:
  int64_t positions_, dim_;
  core::Tensor cos_, sin_;
};

// Rotates x [seq, batch, heads, d] in place, row s by position first_position + s; d >= table.dim(), what is beyond
// passes. inverse rotates back: the gradient, and the inverse. Throws kInvalidArgument past the table's end.
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table, int64_t first_position,
                  bool inverse);

// The same with positions[s] (context-parallel slices, packed documents); positions.size() == seq.
void rope_inplace(Context& context, const core::TensorView& x, const RopeTable& table,
                  std::span<const int32_t> positions, bool inverse);

}  // namespace ms::ops
