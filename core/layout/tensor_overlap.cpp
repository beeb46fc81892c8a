#include "core/layout/tensor_overlap.h"

namespace ms::layout {
namespace {

// Rows of a rank in a part from which its product takes longer than a message's latency, and packing the weight for
// each part little of it (with 128 rows of hidden 256 a tenth).
constexpr int64_t kLargeRows = 256;
constexpr int64_t kMostParts = 8;
constexpr int64_t kSameKernelRows = 16;  // fewer could get another kernel, and other bits, than all rows together

}  // namespace

int64_t TensorOverlap::product_parts(int64_t own_positions, int64_t batch) const {
  const bool automatic = parts == kAutomatic;
  for (int64_t most = automatic ? kMostParts : parts; most > 1; --most) {
    if (own_positions % most == 0 && (!automatic || own_positions / most * batch >= kLargeRows)) return most;
  }
  return 1;
}

bool TensorOverlap::multiplies_own_first(int64_t own_positions, int64_t batch) const {
  return product_parts(own_positions, batch) > 1 || (backward && own_positions * batch >= kSameKernelRows);
}

}  // namespace ms::layout
