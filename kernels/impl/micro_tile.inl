// The register tile of gemm and attention: kRows x kTileColumns of C in registers, one broadcast of A per row and step
// of k; every sum is in the order of k.

#if MS_ISA == 0
constexpr int kTileRows = 2;
constexpr int kTileVecs = 8;
#elif MS_ISA == 1
constexpr int kTileRows = 6;  // registers, of 16: 12 accumulators, 2 for B, 1 for A
constexpr int kTileVecs = 2;
#else
constexpr int kTileRows = 12;  // registers, of 32: 24 accumulators, 2 for B, 1 for A
constexpr int kTileVecs = 2;
#endif
constexpr int64_t kTileColumns = kTileVecs * kLanes;

// One multiply-add of a tile: each lane holds one element along k. pack_pairs.inl has the variant with pairs.
struct MultiplyAdd {
  static MS_INLINE Vec to(Vec sum, Vec a, Vec b) { return fma(a, b, sum); }
};

template <int kRows>
using TileSums = Vec[kRows][kTileVecs];

template <int kRows>
MS_INLINE void clear_tile(TileSums<kRows>& sum) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) sum[i][v] = zero();
  }
}

// sum[i] += sum over p of a[i * a_row + p * a_step] * b[p * b_step, :].
template <int kRows, class Add>
MS_INLINE void add_steps(int64_t k, const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step,
                         TileSums<kRows>& sum) {
  for (int64_t p = 0; p < k; ++p) {
    Vec row[kTileVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) {
      row[v] = load(b + v * kLanes);
      // B streams from L2, and its strip, larger than L1, evicts A too: 97 % of the FMA roofline with this prefetch, 89
      // % without (Cascade Lake, k 384); 16 steps ahead is no better.
      __builtin_prefetch(b + 8 * b_step + v * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec factor = broadcast(a[i * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVecs; ++v) sum[i][v] = Add::to(sum[i][v], factor, row[v]);
    }
    a += a_step;
    b += b_step;
  }
}

template <int kRows>
MS_INLINE void store_tile(const TileSums<kRows>& sum, bool accumulate, float* c, int64_t ldc) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) {
      float* target = c + i * ldc + v * kLanes;
      store(target, accumulate ? load(target) + sum[i][v] : sum[i][v]);
    }
  }
}

// c[i, :] (+)= sum over p of a[i * a_row + p * a_step] * b[p * b_step, :], for kRows rows and kTileColumns columns.
template <int kRows, class Add = MultiplyAdd>
MS_INLINE void micro_tile_rows(int64_t k, const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step,
                               bool accumulate, float* c, int64_t ldc) {
  TileSums<kRows> sum;
  clear_tile<kRows>(sum);
  add_steps<kRows, Add>(k, a, a_row, a_step, b, b_step, sum);
  store_tile<kRows>(sum, accumulate, c, ldc);
}
