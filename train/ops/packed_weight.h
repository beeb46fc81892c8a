// Packed copies of a weight (kernels/gemm/packed_operand.h), made at the first product after the weight has changed and
// read by all products until the next change. Micro-batches, recomputation and threads share one packing
// (--packed-weights).
//
// A copy takes as much memory as the weight, or twice as much if a 16-bit weight is converted to fp32. It is allocated
// from the arena, under "packed" unless another tag is given, at the first product, and kept. Gradients dy * weight
// have a copy only with AMX, whose products of 4096 to 512 tokens would otherwise spend 5 to 20 % of their time on
// packing (Sapphire Rapids). Elsewhere their second operand is packed as it is stored, which costs as much as reading a
// copy (4 micro-batches of 128 tokens on Zen 4: no faster).
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/gemm/packed_operand.h"
#include "train/ops/context.h"

namespace ms::ops {

class PackedWeight {
 public:
  enum class Product { kForward, kGradient };  // x * weight^T, dy * weight

  // changes: a counter that is increased by every write to the weight; must outlive this object.
  explicit PackedWeight(const int64_t& changes, core::MemoryTag tag = core::MemoryTag::kPacked)
      : changes_(&changes), tag_(tag) {}

  // The copy of weight [out, in] for such a product; null if it has none. Packs on the pool's threads if the weight has
  // changed since, or is another one.
  const kernels::PackedOperand* read(Context& context, const core::TensorView& weight, Product product);

  int64_t times_packed() const { return forward_.times; }  // for products x * weight^T
  int64_t times_packed_for_gradients() const { return gradient_.times; }

 private:
  struct Copy {
    core::Buffer memory;
    kernels::PackedOperand operand;
    const std::byte* weight = nullptr;  // the weight that was packed
    int64_t changes = 0;                // value of the counter at packing
    int64_t times = 0;
  };
  const int64_t* changes_;
  core::MemoryTag tag_;
  Copy forward_, gradient_;
};

}  // namespace ms::ops
