#include "kernels/detail/xxh3.h"

#if defined(__x86_64__)

// Everything that xxhash.h includes, before the target region: its inline code must not be compiled for AVX2.
#include <immintrin.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/impl/region.h"

#define MS_TARGET "avx2"
#include "kernels/impl/target_push.h"

#define XXH_VECTOR XXH_AVX2
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ms::kernels::detail {
uint64_t xxh3_avx2(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }
namespace {

// Prefetches a page ahead, which is beyond the reach of the hardware prefetcher. Past the end of the data it is
// harmless.
void prefetch_next_page(const char* at, size_t bytes) {
  constexpr size_t kAhead = 4096, kLine = 64;
  for (size_t line = 0; line < bytes; line += kLine) _mm_prefetch(at + kAhead + line, _MM_HINT_T0);
}

// 64 fp32 elements, one cell of the logical hash. For this length the library's algorithm for long inputs reduces to
// four stripes, kept in registers here; its generic loop takes three times as long.
constexpr size_t kCell = 256, kStripe = 64;

uint64_t xxh3_cell(const char* at) {
  alignas(64) uint64_t sums[8] = XXH3_INIT_ACC;
  for (size_t stripe = 0; stripe < kCell / kStripe - 1; ++stripe) {
    XXH3_accumulate_512(sums, at + stripe * kStripe, XXH3_kSecret + stripe * XXH_SECRET_CONSUME_RATE);
  }
  XXH3_accumulate_512(sums, at + kCell - kStripe,
                      XXH3_kSecret + sizeof XXH3_kSecret - kStripe - XXH_SECRET_LASTACC_START);
  return XXH3_mergeAccs(sums, XXH3_kSecret + XXH_SECRET_MERGEACCS_START, kCell * XXH_PRIME64_1);
}

}  // namespace

void xxh3_each_avx2(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes) {
  const char* at = static_cast<const char*>(data);
  if (piece_bytes == kCell) {
    for (size_t i = 0; i < pieces; ++i, at += kCell) {
      prefetch_next_page(at, kCell);
      hashes[i] = xxh3_cell(at);
    }
    return;
  }
  for (size_t i = 0; i < pieces; ++i, at += piece_bytes) {
    prefetch_next_page(at, piece_bytes);
    hashes[i] = XXH3_64bits(at, piece_bytes);
  }
}
void xxh3_update_avx2(void* state, const void* data, size_t size_bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size_bytes);
}
}  // namespace ms::kernels::detail

#include "kernels/impl/target_pop.h"

#endif
