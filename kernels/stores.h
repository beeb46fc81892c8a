// How a kernel stores its results. Affects speed only, never the result.
#pragma once

#include <cstdint>

namespace ms::kernels {

enum class Stores : uint8_t {
  kCached,       // through the caches, for results that are read soon
  kNonTemporal,  // streaming stores, for results too large for the caches: memory is not read before it is written
};

}  // namespace ms::kernels
