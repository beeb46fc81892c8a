// The "skinny" implementation of gemm.h: few rows of C, such as one expert's tokens. Packing B would cost as much as
// multiplying with it, so B is read in place. Sums have the order of "packed", and therefore the same bits.

// Rows of C. Experts of 16 tokens reach 1.0 to 1.4 times oneDNN's speed forward, those of 12 only 0.6 to 0.9; with B
// stored [k, n], 16 reach 1.7 to 2.2 and 8 reach 2.8 to 3.0 (512 x 512 to 768 x 2048, one thread of Zen 4).
constexpr int64_t kSkinnyMinRows = 8, kSkinnyMinRowsTransposed = 16, kSkinnyMaxRows = 64;

#if MS_ISA == 2
constexpr int kSkinnyLines = 8;  // lines of B^T per tile: 16 accumulators
#else
constexpr int kSkinnyLines = 4;  // 8 accumulators
#endif

// Prefetches the rows of a tile of C into L2, one by one while its sums run: saves 2 to 5 % of the time. Into L1 it
// saves less, because B's rows need the same sets if they are a power of two apart (64 experts of 32 tokens, one thread
// of Zen 4).
struct PrefetchTile {
  const float* c;
  int64_t ldc;
  int64_t rate;  // rows per step, in 65536ths

  MS_INLINE void operator()(int64_t p, int v, Vec) const { prefetch(c + (p * rate >> 16) * ldc + v * kLanes); }
};

// c[i, :] (+)= sum over p of a[p * kTileRows + i] * b[p * ldb, :], for kRows rows and kTileColumns columns.
template <int kRows, class T>
MS_INLINE void skinny_tile_rows(int64_t k, const float* a, const T* b, int64_t ldb, const T* ahead, bool accumulate,
                                float* c, int64_t ldc) {
  TileSums<kRows> sum;
  clear_tile<kRows>(sum);
  add_unpacked_steps<kRows>(k, PackedRows{a}, b, ldb, ahead, PrefetchTile{c, ldc, (int64_t{kRows} << 16) / k}, sum);
  store_tile<kRows>(sum, accumulate, c, ldc);
}

// A strip of packed A times a strip of B. Rows are computed in thirds of a tile.
template <class T>
void skinny_tile(int64_t k, const float* a, const T* b, int64_t ldb, const T* ahead, int64_t rows, int64_t columns,
                 bool accumulate, float* c, int64_t ldc) {
  constexpr int kThird = kTileRows > 2 ? kTileRows / 3 : 1;
  const bool whole = rows % kThird == 0 && columns == kTileColumns;
  alignas(64) float edge[kTileRows * kTileColumns];
  float* const target = whole ? c : edge;
  const int64_t stride = whole ? ldc : kTileColumns;
  const bool add = whole && accumulate;
  if (rows > 2 * kThird) {
    skinny_tile_rows<kTileRows>(k, a, b, ldb, ahead, add, target, stride);
  } else if (rows > kThird) {
    skinny_tile_rows<2 * kThird>(k, a, b, ldb, ahead, add, target, stride);
  } else {
    skinny_tile_rows<kThird>(k, a, b, ldb, ahead, add, target, stride);
  }
  if (!whole) store_edge(edge, rows, columns, accumulate, c, ldc);
}

// One block of k of C = A * B, B stored [k, n].
template <class A, class B>
void skinny_block(const GemmProblem& problem, const A* a, const B* b, int64_t block_k, bool accumulate, float* c,
                  int64_t ldc, GemmScratch& scratch) {
  const int64_t m = problem.m, n = problem.n;
  float* const packed_a = scratch.packed_a(packed_floats<kTileRows>(m, block_k));
  pack<kTileRows>(a, problem.lda, !problem.transpose_a, m, block_k, packed_a);
  const int64_t whole = n / kTileColumns * kTileColumns;
  for (int64_t j = 0; j < whole; j += kTileColumns) {
    // After the last strip, prefetch the rows below: those of the next block of k, or of the next expert, which may
    // have more of them; each tile prefetches different ones. Saves 3 to 6 % of the time. Packing the strip for the
    // other tiles instead is a quarter slower.
    const bool is_last = j + kTileColumns >= whole;
    const B* ahead = is_last ? b + block_k * problem.ldb : b + j + kTileColumns;
    for (int64_t i = 0; i < m; i += kTileRows) {
      skinny_tile(block_k, packed_a + i * block_k, b + j, problem.ldb, ahead, at_most(m - i, kTileRows), kTileColumns,
                  accumulate, c + i * ldc + j, ldc);
      if (is_last) ahead += block_k * problem.ldb;
    }
    poll_progress();
  }
  if (whole == n) return;
  float* const last = scratch.packed_b(packed_floats<kTileColumns>(kTileColumns, block_k));
  pack<kTileColumns>(b + whole, problem.ldb, false, n - whole, block_k, last);
  for (int64_t i = 0; i < m; i += kTileRows) {
    skinny_tile(block_k, packed_a + i * block_k, last, kTileColumns, last + kTileColumns, at_most(m - i, kTileRows),
                n - whole, accumulate, c + i * ldc + whole, ldc);
  }
}

// across[l, :] = sum over p of lines[l * line + p * step] * rows[p * kTileColumns, :], for kSkinnyLines lines.
// Prefetches the lines at `ahead`, ahead_line apart, which are read next: 80 to 84 % of the roofline with it, 64 to 72
// % without (64 experts of 32 tokens, one thread of Zen 4).
template <class T>
void skinny_lines(int64_t block_k, const float* lines, int64_t line, int64_t step, const float* rows, const T* ahead,
                  int64_t ahead_line, float* across) {
  constexpr int64_t kLineOfCache = 64 / sizeof(T);
  Vec sum[kSkinnyLines][kTileVecs];
#pragma GCC unroll 16
  for (int l = 0; l < kSkinnyLines; ++l) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) sum[l][v] = zero();
  }
  for (int64_t p = 0; p < block_k;) {
#pragma GCC unroll 16
    for (int l = 0; l < kSkinnyLines; ++l) __builtin_prefetch(ahead + l * ahead_line + p);
    for (const int64_t end = at_most(p + kLineOfCache, block_k); p < end; ++p) {
      Vec row[kTileVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVecs; ++v) row[v] = load(rows + p * kTileColumns + v * kLanes);
#pragma GCC unroll 16
      for (int l = 0; l < kSkinnyLines; ++l) {
        const Vec factor = broadcast(lines[l * line + p * step]);
#pragma GCC unroll 8
        for (int v = 0; v < kTileVecs; ++v) sum[l][v] = fma(factor, row[v], sum[l][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int l = 0; l < kSkinnyLines; ++l) {
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) store(across + l * kTileColumns + v * kLanes, sum[l][v]);
  }
}

#if MS_ISA == 2
// target[p * stride + line] = source[line * ld + p], 8 x 8, so that rows of 8 are stored whole; with pack's groups of
// four these products take 3 to 5 % longer.
MS_INLINE void transpose8(const float* source, int64_t ld, float* target, int64_t stride) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(source + i * ld);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(target + i * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(target + (i + 4) * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#endif

// target[i, l] (+)= across[l, i], for rows <= kTileColumns and lines <= kSkinnyLines.
inline void store_across(const float* across, int64_t rows, int64_t lines, bool accumulate, float* target, int64_t ld) {
  int64_t i = 0;
#if MS_ISA == 2
  for (; lines == kSkinnyLines && i + 8 <= rows; i += 8) {
    alignas(32) float transposed[8 * kSkinnyLines];
    transpose8(across + i, kTileColumns, transposed, kSkinnyLines);
    for (int64_t row = 0; row < 8; ++row) {
      const __m256 sum = _mm256_load_ps(transposed + row * kSkinnyLines);
      float* const at = target + (i + row) * ld;
      _mm256_storeu_ps(at, accumulate ? _mm256_add_ps(_mm256_loadu_ps(at), sum) : sum);
    }
  }
#endif
  for (; i < rows; ++i) {
    for (int64_t l = 0; l < lines; ++l) {
      float& at = target[i * ld + l];
      at = accumulate ? at + across[l * kTileColumns + i] : across[l * kTileColumns + i];
    }
  }
}

// One block of k of C = A * B, B stored [n, k]: some lines of B times all rows of A, transposed when stored.
template <class A, class B>
void skinny_block_transposed(const GemmProblem& problem, const A* a, const B* b, int64_t block_k, bool accumulate,
                             float* c, int64_t ldc, GemmScratch& scratch) {
  const int64_t m = problem.m, n = problem.n;
  float* const rows = scratch.packed_a(packed_floats<kTileColumns>(m, block_k));
  pack<kTileColumns>(a, problem.lda, !problem.transpose_a, m, block_k, rows);
  float* const packed = scratch.packed_b(packed_floats<kSkinnyLines>(kSkinnyLines, block_k));
  alignas(64) float across[kSkinnyLines * kTileColumns];
  for (int64_t j = 0; j < n; j += kSkinnyLines, b += kSkinnyLines * problem.ldb) {
    const int64_t lines = at_most(n - j, kSkinnyLines);
    const float* line = packed;
    int64_t next_line = 1, next_step = kSkinnyLines;
    if constexpr (sizeof(B) == sizeof(float)) {
      if (lines == kSkinnyLines) line = b, next_line = problem.ldb, next_step = 1;
    }
    if (line == packed) pack<kSkinnyLines>(b, problem.ldb, true, lines, block_k, packed);
    for (int64_t i = 0; i < m; i += kTileColumns) {
      skinny_lines(block_k, line, next_line, next_step, rows + i * block_k, b + kSkinnyLines * problem.ldb, problem.ldb,
                   across);
      store_across(across, at_most(m - i, kTileColumns), lines, accumulate, c + i * ldc + j, ldc);
    }
  }
}

struct Skinny {
  template <class A, class B>
  static void run(const GemmProblem& problem, GemmScratch& scratch) {
    const bool narrow = problem.c_type != GemmType::kFp32;
    float* const c = narrow ? scratch.sums(problem.m * problem.n) : static_cast<float*>(problem.c);
    const int64_t ldc = narrow ? problem.n : problem.ldc;
    for (int64_t begin = 0; begin < problem.k; begin += kBlockK<Floats>) {
      const int64_t block_k = at_most(problem.k - begin, kBlockK<Floats>);
      const A* const a = static_cast<const A*>(problem.a) + (problem.transpose_a ? begin * problem.lda : begin);
      const B* const b = static_cast<const B*>(problem.b) + (problem.transpose_b ? begin : begin * problem.ldb);
      const bool add = begin > 0 || problem.accumulate;
      if (problem.transpose_b) {
        skinny_block_transposed(problem, a, b, block_k, add, c, ldc, scratch);
      } else {
        skinny_block(problem, a, b, block_k, add, c, ldc, scratch);
      }
    }
    if (!narrow && !problem.epilogue.any()) return;
    for (int64_t i = 0; i < problem.m; ++i) finish_row(problem, i, 0, c + i * ldc, problem.n);
  }
};
