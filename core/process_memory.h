// Memory of this process, as counted by the kernel.
#pragma once

#include <cstdint>

namespace ms::core {

// Peak resident memory in bytes, except a few pages per core that the kernel has not counted yet. 0 if /proc does not
// report it. Does not allocate.
int64_t peak_resident_bytes();

}  // namespace ms::core
