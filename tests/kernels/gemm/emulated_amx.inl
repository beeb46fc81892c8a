// Emulates AMX tile registers in memory, so that gemm_amx.inl can be tested on CPUs without AMX: packing, tile
// addresses and stores are the real code. TDPBF16PS is not emulated exactly: it adds in another order.

struct EmulatedTile {
  uint32_t words[16][16];
};
inline EmulatedTile& emulated_tile(int index) {
  thread_local EmulatedTile tiles[8];
  return tiles[index];
}

inline void emulated_load(int index, const void* from, int64_t stride) {
  for (int64_t row = 0; row < 16; ++row) {
    std::memcpy(emulated_tile(index).words[row], static_cast<const char*>(from) + row * stride, 64);
  }
}
inline void emulated_store(int index, void* to, int64_t stride) {
  for (int64_t row = 0; row < 16; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, emulated_tile(index).words[row], 64);
  }
}

// Adds the products of the pair in word `pair` of each row of A and row `pair` of B.
inline void emulated_products(int sums, int a, int b) {
  const __m512i above = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  for (int row = 0; row < 16; ++row) {
    uint32_t* const words = emulated_tile(sums).words[row];
    __m512 sum = _mm512_loadu_ps(words);
    for (int pair = 0; pair < 16; ++pair) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(emulated_tile(a).words[row][pair]));
      const __m512i y = _mm512_loadu_si512(emulated_tile(b).words[pair]);
      sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                            _mm512_castsi512_ps(_mm512_slli_epi32(y, 16)), sum);
      sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, above)),
                            _mm512_castsi512_ps(_mm512_and_si512(y, above)), sum);
    }
    _mm512_storeu_ps(words, sum);
  }
}

struct TilesInUse {
  TilesInUse() {}
};
inline void memory_barrier() {}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadd(index, from, stride) emulated_load(index, from, stride)
#define _tile_stored(index, to, stride) emulated_store(index, to, stride)
#define _tile_zero(index) (emulated_tile(index) = {})
#define _tile_dpbf16ps(sums, a, b) emulated_products(sums, a, b)

#include "kernels/gemm/impl/gemm_amx.inl"
