#include "train/data/detail/numpy_random.h"

#include <utility>

#include "core/error.h"

namespace ms::train::detail {

NumpyRandomState::NumpyRandomState(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {
  if (seed > UINT32_MAX) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("--seed ", seed, ": the data order takes seeds from 0 to 4294967295"));
  }
}

uint64_t NumpyRandomState::interval(uint64_t last) {
  if (last == 0) return 0;  // no draw
  uint64_t mask = last;
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  for (;;) {
    uint64_t value = engine_();
    if (last > UINT32_MAX) value = value << 32 | engine_();
    value &= mask;
    if (value <= last) return value;
  }
}

void NumpyRandomState::shuffle(std::span<int64_t> values, Patience patience) {
  for (size_t i = values.size(); i-- > 1;) {
    patience.step();
    std::swap(values[i], values[interval(i)]);
  }
}

}  // namespace ms::train::detail
