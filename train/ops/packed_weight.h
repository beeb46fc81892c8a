// A weight's packed copy (kernels/packed_operand.h) for x * weight^T: made at the first such product after the weight
// has changed, read by all until the next change, so that micro-batches, recomputation and threads share one packing.
//
// It takes the weight's size again, of a 16-bit weight that is converted to fp32 twice it; in the arena under "packed",
// allocated at the first product and kept. Gradients dy * weight have none: their second operand is packed as it lies,
// which costs as much as reading the copy (4 micro-batches of 128 tokens on Zen 4: no faster).
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/packed_operand.h"
#include "train/ops/context.h"

namespace ms::ops {

class PackedWeight {
 public:
  // changes: counts the changes of the weight; outlives this. Whoever writes to the weight adds to it.
  explicit PackedWeight(const int64_t& changes) : changes_(&changes) {}

  // The copy of weight [out, in]. Null where gemm reads none here (kernels::packed_format). Packs on the pool's
  // threads, if weight has changed since, or is another.
  const kernels::PackedOperand* read(Context& context, const core::TensorView& weight);

  int64_t times_packed() const { return times_packed_; }

 private:
  const int64_t* changes_;
  core::Buffer memory_;
  kernels::PackedOperand operand_;
  const std::byte* packed_weight_ = nullptr;  // of which it is
  int64_t packed_changes_ = 0;                // as of the packing
  int64_t times_packed_ = 0;
};

}  // namespace ms::ops
