// XXH3-64 (libxxhash): at memcpy speed, for accidents and not for attackers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::kernels {

// Hash of size_bytes at data (may be null when size_bytes is 0), seed 0: a seeded XXH3 derives a secret per call.
uint64_t xxh3(const void* data, size_t size_bytes);

}  // namespace ms::kernels
