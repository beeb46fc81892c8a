// XXH3-64 of libxxhash's header, compiled for AVX2: Debian's library keeps to SSE2 and takes up to twice as long. Wider
// vectors gain nothing more. The hash is the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ms::kernels::detail {

#if defined(__x86_64__)
uint64_t xxh3_avx2(const void* data, size_t size_bytes);
#endif

}  // namespace ms::kernels::detail
