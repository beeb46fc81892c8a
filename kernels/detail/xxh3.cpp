#include "kernels/detail/xxh3.h"

#if defined(__x86_64__)

// All that xxhash.h includes, outside the region: its inline code must not be compiled for this instruction set.
#include <immintrin.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define XXH_VECTOR XXH_AVX2
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ms::kernels::detail {
uint64_t xxh3_avx2(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }
}  // namespace ms::kernels::detail

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
