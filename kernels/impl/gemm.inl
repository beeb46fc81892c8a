// The "tiles" implementation of gemm.h: Goto & van de Geijn 2008 (as in BLIS), with bf16 converted while packing.

#include "kernels/impl/micro_tile.inl"

constexpr int64_t kPackRows = (kTileRows + 7) / 8 * 8;  // a strip of A is padded to whole 8 x 8 transposes
// Panels: a strip of B (kDepth x kTileColumns) stays in L1, a block of A (kBlockRows x kDepth) in L2, the panel of B
// (kDepth x kBlockColumns) in L3. kDepth also fixes the order of summation: never make it depend on the problem.
constexpr int64_t kDepth = 256;
constexpr int64_t kBlockRows = 96 / kTileRows * kTileRows;
constexpr int64_t kBlockColumns = 2048 / kTileColumns * kTileColumns;

#if MS_ISA > 0
MS_INLINE __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
MS_INLINE __m256 load8(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// target[p * stride + line] = source[line * ld + p], 8 x 8
template <class T>
MS_INLINE void transpose8(const T* source, int64_t ld, float* target, int64_t stride) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = load8(source + i * ld);
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

// Packs `lines` rows of op(A), or columns of op(B), over `depth` steps of k into strips of kWidth lines:
// target[strip][p * kStride + line]. Lines beyond the last are 0.
// along_k: a line is contiguous in memory (source[line * ld + p]); else a step is (source[p * ld + line]).
template <int64_t kWidth, int64_t kStride, class T>
void pack(const T* source, int64_t ld, bool along_k, int64_t lines, int64_t depth, float* target) {
  for (int64_t first = 0; first < lines; first += kWidth, target += kStride * depth) {
    const int64_t width = lines - first < kWidth ? lines - first : kWidth;
    int64_t packed = 0;  // steps of k already packed by vector code
    if (along_k) {
      const T* strip = source + first * ld;
#if MS_ISA > 0
      // The last lines of a padded strip are read from the next one's, if that is there.
      if (lines - first >= kStride) {
        for (; packed + 8 <= depth; packed += 8) {
          for (int64_t line = 0; line < kStride; line += 8) {
            transpose8(strip + line * ld + packed, ld, target + packed * kStride + line, kStride);
          }
        }
      }
#endif
      for (int64_t p = packed; p < depth; ++p) {
        float* step = target + p * kStride;
        for (int64_t line = 0; line < width; ++line) step[line] = to_float(strip[line * ld + p]);
        for (int64_t line = width; line < kStride; ++line) step[line] = 0;
      }
    } else {
      const T* strip = source + first;
#if MS_ISA > 0
      if (lines - first >= kStride) {
        for (; packed < depth; ++packed) {
          for (int64_t line = 0; line < kStride; line += 8) {
            _mm256_storeu_ps(target + packed * kStride + line, load8(strip + packed * ld + line));
          }
        }
      }
#endif
      for (int64_t p = packed; p < depth; ++p) {
        float* step = target + p * kStride;
        for (int64_t line = 0; line < width; ++line) step[line] = to_float(strip[p * ld + line]);
        for (int64_t line = width; line < kStride; ++line) step[line] = 0;
      }
    }
  }
}

// One packed strip of A times one of B. rows <= kTileRows, columns <= kTileColumns: edges go through a buffer, so that
// every element sees the same arithmetic.
inline void packed_tile(int64_t depth, const float* a, const float* b, int64_t rows, int64_t columns, bool accumulate,
                        float* c, int64_t ldc) {
  if (rows == kTileRows && columns == kTileColumns) {
    micro_tile_rows<kTileRows>(depth, a, 1, kPackRows, b, kTileColumns, accumulate, c, ldc);
    return;
  }
  alignas(64) float edge[kTileRows * kTileColumns];
  micro_tile_rows<kTileRows>(depth, a, 1, kPackRows, b, kTileColumns, false, edge, kTileColumns);
  for (int64_t i = 0; i < rows; ++i) {
    float* target = c + i * ldc;
    const float* source = edge + i * kTileColumns;
    if (accumulate) {
      for (int64_t j = 0; j < columns; ++j) target[j] += source[j];
    } else {
      for (int64_t j = 0; j < columns; ++j) target[j] = source[j];
    }
  }
}

// packed_a, packed_b: room for one block each (gemm_tiles_workspace).
template <class A, class B>
void gemm_panel(const GemmProblem& problem, const A* a, const B* b, int64_t columns, bool accumulate, float* c,
                int64_t ldc, float* packed_a, float* packed_b) {
  const int64_t m = problem.m, k = problem.k;
  for (int64_t depth_begin = 0; depth_begin < k; depth_begin += kDepth) {
    const int64_t depth = k - depth_begin < kDepth ? k - depth_begin : kDepth;
    const bool add = accumulate || depth_begin > 0;
    const B* b_block = problem.transpose_b ? b + depth_begin : b + depth_begin * problem.ldb;
    pack<kTileColumns, kTileColumns>(b_block, problem.ldb, problem.transpose_b, columns, depth, packed_b);
    for (int64_t row_begin = 0; row_begin < m; row_begin += kBlockRows) {
      const int64_t rows = m - row_begin < kBlockRows ? m - row_begin : kBlockRows;
      const A* a_block = problem.transpose_a ? a + depth_begin * problem.lda + row_begin
                                             : a + row_begin * problem.lda + depth_begin;
      pack<kTileRows, kPackRows>(a_block, problem.lda, !problem.transpose_a, rows, depth, packed_a);
      for (int64_t j = 0; j < columns; j += kTileColumns) {
        const float* b_strip = packed_b + j * depth;
        for (int64_t i = 0; i < rows; i += kTileRows) {
          const float* a_strip = packed_a + i / kTileRows * kPackRows * depth;
          packed_tile(depth, a_strip, b_strip, rows - i < kTileRows ? rows - i : kTileRows,
                      columns - j < kTileColumns ? columns - j : kTileColumns, add, c + (row_begin + i) * ldc + j, ldc);
        }
      }
    }
  }
}

template <class A, class B>
void gemm_tiles_typed(const GemmProblem& problem, GemmScratch& scratch) {
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const auto* a = static_cast<const A*>(problem.a);
  const auto* b = static_cast<const B*>(problem.b);
  float* packed_a = scratch.packed_a(kBlockRows / kTileRows * kPackRows * kDepth);
  const int64_t widest = n < kBlockColumns ? (n + kTileColumns - 1) / kTileColumns * kTileColumns : kBlockColumns;
  float* packed_b = scratch.packed_b(widest * (k < kDepth ? k : kDepth));
  for (int64_t column_begin = 0; column_begin < n; column_begin += kBlockColumns) {
    const int64_t columns = n - column_begin < kBlockColumns ? n - column_begin : kBlockColumns;
    const B* b_panel = problem.transpose_b ? b + column_begin * problem.ldb : b + column_begin;
    if (problem.c_type == GemmType::kFp32) {
      gemm_panel(problem, a, b_panel, columns, problem.accumulate, static_cast<float*>(problem.c) + column_begin,
                 problem.ldc, packed_a, packed_b);
      continue;
    }
    float* sums = scratch.sums(m * columns);
    gemm_panel(problem, a, b_panel, columns, false, sums, columns, packed_a, packed_b);
    for (int64_t i = 0; i < m; ++i) {
      bf16* target = static_cast<bf16*>(problem.c) + i * problem.ldc + column_begin;
      const float* source = sums + i * columns;
      int64_t j = 0;
      for (; j + kLanes <= columns; j += kLanes) store(target + j, load(source + j));
      for (; j < columns; ++j) target[j] = bf16(source[j]);
    }
  }
}

inline void gemm_tiles(const GemmProblem& problem, GemmScratch& scratch) {
  const bool a_bf16 = problem.a_type == GemmType::kBf16, b_bf16 = problem.b_type == GemmType::kBf16;
  if (a_bf16 && b_bf16) return gemm_tiles_typed<bf16, bf16>(problem, scratch);
  if (a_bf16) return gemm_tiles_typed<bf16, float>(problem, scratch);
  if (b_bf16) return gemm_tiles_typed<float, bf16>(problem, scratch);
  return gemm_tiles_typed<float, float>(problem, scratch);
}
