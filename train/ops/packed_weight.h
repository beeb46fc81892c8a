// A weight's packed copies (kernels/packed_operand.h), made at the first product after the weight has changed, read by
// all until the next change, so that micro-batches, recomputation and threads share one packing.
//
// A copy takes the weight's size again, of a 16-bit weight that is converted to fp32 twice it; in the arena under
// "packed", allocated at the first product and kept. Gradients dy * weight have one with AMX, whose
// products of 4096 to 512 tokens would spend 5 to 20 % of their time on packing (Sapphire Rapids). Elsewhere their
// second operand is packed as it lies, which costs as much as reading a copy (4 micro-batches of 128 tokens on Zen 4:
// no faster).
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/packed_operand.h"
#include "train/ops/context.h"

namespace ms::ops {

class PackedWeight {
 public:
  enum class Product { kForward, kGradient };  // x * weight^T, dy * weight

  // changes: counts the changes of the weight; outlives this. Whoever writes to the weight adds to it.
  explicit PackedWeight(const int64_t& changes) : changes_(&changes) {}

  // The copy of weight [out, in] for such a product. Null where it has none. Packs on the pool's threads, if weight has
  // changed since, or is another.
  const kernels::PackedOperand* read(Context& context, const core::TensorView& weight, Product product);

  int64_t times_packed() const { return forward_.times; }  // for products x * weight^T
  int64_t times_packed_for_gradients() const { return gradient_.times; }

 private:
  struct Copy {
    core::Buffer memory;
    kernels::PackedOperand operand;
    const std::byte* weight = nullptr;  // of which it is
    int64_t changes = 0;                // as of the packing
    int64_t times = 0;
  };
  const int64_t* changes_;
  Copy forward_, gradient_;
};

}  // namespace ms::ops
