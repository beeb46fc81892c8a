// XXH3-64 from libxxhash's header, compiled for AVX2: Debian's library uses SSE2 only and takes up to twice as long.
// Wider vectors are no faster. The hash value is the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::kernels::detail {

#if defined(__x86_64__)
uint64_t xxh3_avx2(const void* data, size_t size_bytes);
void xxh3_each_avx2(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes);
// Updates an XXH3_state_t, whose layout is the same for every instruction set.
void xxh3_update_avx2(void* state, const void* data, size_t size_bytes);
#endif

}  // namespace ms::kernels::detail
