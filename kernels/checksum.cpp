#include "kernels/checksum.h"

#include <xxhash.h>

namespace ms::kernels {

uint64_t xxh3(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }

}  // namespace ms::kernels
