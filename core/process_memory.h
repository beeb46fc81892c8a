// What the kernel counts of this process's memory.
#pragma once

#include <cstdint>

namespace ms::core {

// The most that was ever resident at once, but for what the kernel has not counted yet: some pages on each core. 0
// where /proc does not tell. Takes nothing from the heap.
int64_t peak_resident_bytes();

}  // namespace ms::core
