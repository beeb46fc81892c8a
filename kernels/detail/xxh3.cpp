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
void xxh3_each_avx2(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes) {
  // What comes is asked for a page ahead, which the hardware's prefetcher does not look beyond. Past the end it is only
  // a hint.
  constexpr size_t kAhead = 4096, kLine = 64;
  const char* at = static_cast<const char*>(data);
  for (size_t i = 0; i < pieces; ++i, at += piece_bytes) {
    for (size_t line = 0; line < piece_bytes; line += kLine) _mm_prefetch(at + kAhead + line, _MM_HINT_T0);
    hashes[i] = XXH3_64bits(at, piece_bytes);
  }
}
void xxh3_update_avx2(void* state, const void* data, size_t size_bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size_bytes);
}
}  // namespace ms::kernels::detail

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
