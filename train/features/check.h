// Checks of values that flags have.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "core/printable.h"

namespace ms::train {

// Samples of a run: exact as a double, which Megatron computes with and JSON stores.
inline constexpr int64_t kMaxSamples = int64_t{1} << 53;

// Throws kInvalidArgument with these parts as text unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(parts...));
}

using core::require_one_of;

// Runs a parser of the flag's value; its error then begins with the flag.
template <class Parse>
void within_flag(const char* flag, const Parse& parse) {
  try {
    parse();
  } catch (const core::Error& e) {
    throw e.within(flag);
  }
}

}  // namespace ms::train
