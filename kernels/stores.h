// Where what a kernel writes goes. Only speed differs, never a bit.
#pragma once

#include <cstdint>

namespace ms::kernels {

enum class Stores : uint8_t {
  kCached,      // through the caches: who reads it next finds it there
  kPastCaches,  // streaming, for results that caches do not hold: memory is not read before it is written
};

}  // namespace ms::kernels
