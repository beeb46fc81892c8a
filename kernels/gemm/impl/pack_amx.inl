// Packs bf16 operands into the tiles of gemm_amx.inl. A tile of A: 16 rows of 32 elements along k, 64 bytes each. A
// tile of B: 16 pairs along k (pack_pairs.inl) of 16 columns; two tiles are side by side in a strip.

#include "kernels/impl/pack.inl"
// What uses it must come second.
#include "kernels/gemm/impl/pack_pairs.inl"

constexpr int64_t kTileK = 32;                     // elements along k in a row of A
constexpr int64_t kTileLines = 16;                 // rows of A, columns of B
constexpr int64_t kSquare = 2 * kTileLines;        // side of a square of C, four registers: 2 x 2 tiles
constexpr int64_t kSquareStep = kSquare * kTileK;  // elements of A, or of B, in one step of a square
constexpr int64_t kMaxBlockK = 512;                // along k: a strip of B is 32 KiB

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Elements of k per block. It fixes the layout of packed operands, so it may depend on k only.
inline int64_t block_k_of(int64_t k) {
  const int64_t blocks = (k + kMaxBlockK - 1) / kMaxBlockK;
  return round_up((k + blocks - 1) / blocks, kTileK);
}

// Mask of the first `k_count` of 32 elements.
MS_INLINE __mmask32 first_of_k(int64_t k_count) {
  if (k_count >= kTileK) return ~__mmask32{0};
  return k_count <= 0 ? 0 : (__mmask32{1} << k_count) - 1;
}

MS_INLINE __m512i load_along_k(const bf16* source, int64_t k_count) {
  return _mm512_maskz_loadu_epi16(first_of_k(k_count), source);
}

// Address of the tile of rows [row, row + 16) in packed A, for a block of k of `block_k` elements.
inline bf16* tile_of(bf16* packed, int64_t row, int64_t block_k) {
  return packed + row / kSquare * kSquare * block_k + row % kSquare * kTileK;
}

// Packs rows of A that are contiguous in memory: square by square, for each step its two tiles. k, and the rows of a
// tile, are padded with 0.
inline void pack_rows(const bf16* a, int64_t lda, int64_t rows, int64_t k_count, bf16* packed) {
  const int64_t block_k = round_up(k_count, kTileK);
  for (int64_t row = 0; row < rows; row += kTileLines) {
    bf16* target = tile_of(packed, row, block_k);
    const int64_t there = at_most(rows - row, kTileLines);
    for (int64_t k_begin = 0; k_begin < k_count; k_begin += kTileK, target += kSquareStep) {
      for (int64_t i = 0; i < kTileLines; ++i) {
        const __m512i line =
            i < there ? load_along_k(a + (row + i) * lda + k_begin, k_count - k_begin) : _mm512_setzero_si512();
        _mm512_store_si512(target + i * kTileK, line);
      }
    }
  }
}

MS_INLINE __m128i load_eight(const bf16* source) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)); }

// Quarter i of the result holds 8 elements from source + 8 * i * ld.
MS_INLINE __m512i load_quarters(const bf16* source, int64_t ld) {
  __m512i quarters = _mm512_castsi128_si512(load_eight(source));
  quarters = _mm512_inserti32x4(quarters, load_eight(source + 8 * ld), 1);
  quarters = _mm512_inserti32x4(quarters, load_eight(source + 16 * ld), 2);
  return _mm512_inserti32x4(quarters, load_eight(source + 24 * ld), 3);
}

// target[row * 32 + p] = source[p * ld + row], 32 x 32: eight rows at a time; each quarter holds eight elements of k.
MS_INLINE void transpose_square(const bf16* source, int64_t ld, bf16* target) {
  for (int64_t row = 0; row < kSquare; row += 8, source += 8, target += 8 * kTileK) {
    __m512i v[8], pairs[8], fours[8];
#pragma GCC unroll 8
    for (int64_t i = 0; i < 8; ++i) v[i] = load_quarters(source + i * ld, ld);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      pairs[i] = _mm512_unpacklo_epi16(v[2 * i], v[2 * i + 1]);  // rows 0 to 3
      pairs[4 + i] = _mm512_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int64_t half = 0; half < 8; half += 4) {
#pragma GCC unroll 2
      for (int64_t i = 0; i < 2; ++i) {
        fours[half + i] = _mm512_unpacklo_epi32(pairs[half + 2 * i], pairs[half + 2 * i + 1]);  // rows 0 and 1
        fours[half + 2 + i] = _mm512_unpackhi_epi32(pairs[half + 2 * i], pairs[half + 2 * i + 1]);
      }
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < 8; i += 2) {
      _mm512_store_si512(target + i * kTileK, _mm512_unpacklo_epi64(fours[i], fours[i + 1]));
      _mm512_store_si512(target + (i + 1) * kTileK, _mm512_unpackhi_epi64(fours[i], fours[i + 1]));
    }
  }
}

// pack_rows for A stored [k, m]: 32 rows at a time, which are one cache line. Prefetching lines, and copying a square
// before transposing it: no gain (Zen 4).
inline void pack_rows_across(const bf16* a, int64_t lda, int64_t rows, int64_t k_count, bf16* packed) {
  const int64_t block_k = round_up(k_count, kTileK);
  for (int64_t k_begin = 0; k_begin < k_count; k_begin += kTileK) {
    for (int64_t row = 0; row < rows; row += kSquare) {
      const bf16* const source = a + k_begin * lda + row;
      bf16* const target = tile_of(packed, row, block_k) + k_begin / kTileK * kSquareStep;
      const int64_t lines = at_most(k_count - k_begin, kTileK);
      if (lines == kTileK && rows - row >= kSquare) {
        transpose_square(source, lda, target);
        continue;
      }
      alignas(64) bf16 edge[kTileK * kSquare] = {};
      for (int64_t i = 0; i < lines; ++i) {
        _mm512_store_si512(edge + i * kSquare, load_along_k(source + i * lda, rows - row));
      }
      transpose_square(edge, kSquare, target);
    }
  }
}

// Columns of a packed operand, stored by blocks of k, each with all strips.
struct PackedColumns {
  float* words = nullptr;
  int64_t n = 0;       // of the operand
  int64_t column = 0;  // of the operand, where the problem's columns begin

  float* strip(int64_t k_begin, int64_t block_k, int64_t of_problem) const {
    return words + k_begin / 2 * packed_strips(n) * kPackedStrip + (column + of_problem) * (block_k / 2);
  }
};

// Words of a strip of B: kRows rows of 32 columns, of which the first `k_count` and `columns` exist.
template <int64_t kRows, bool kWhole>
MS_INLINE void interleave_rows(const bf16* rows, int64_t ld, int64_t k_count, int64_t columns, float* words) {
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
#pragma GCC unroll 4
  for (int64_t row = 0; row < kRows; row += 2, rows += 2 * ld, words += kSquare) {
    const __m512i below = kWhole ? _mm512_loadu_si512(rows) : load_along_k(rows, row < k_count ? columns : 0);
    const __m512i above =
        kWhole ? _mm512_loadu_si512(rows + ld) : load_along_k(rows + ld, row + 1 < k_count ? columns : 0);
    const __m512i low = _mm512_unpacklo_epi16(below, above), high = _mm512_unpackhi_epi16(below, above);
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(words + kLanes, _mm512_permutex2var_epi64(low, second, high));
  }
}

// Packs strips of B over `k_count` elements of k from `k_begin` on, one after another.
inline void pack_strips(const GemmProblem& problem, int64_t column, int64_t columns, int64_t k_begin, int64_t k_count,
                        float* target) {
  const auto* const b = static_cast<const bf16*>(problem.b);
  const int64_t ld = problem.ldb, block_k = round_up(k_count, kTileK), strip_words = kSquare * block_k / 2;
  if (problem.transpose_b) {
    for (int64_t j = 0; j < columns; j += kSquare) {
      float* const strip = target + j / kSquare * strip_words;
      pack_pairs<kSquare>(b + (column + j) * ld + k_begin, ld, true, at_most(columns - j, kSquare), k_count, strip);
      for (int64_t word = (k_count + 1) / 2 * kSquare; word < strip_words; word += kLanes) store(strip + word, zero());
    }
    return;
  }
  // All strips for a few rows at a time: the hardware prefetcher follows these rows.
  constexpr int64_t kRows = 8;
  for (int64_t first = 0; first < block_k; first += kRows) {
    const bf16* const rows = b + (k_begin + first) * ld + column;
    for (int64_t j = 0; j < columns; j += kSquare) {
      float* const words = target + j / kSquare * strip_words + first / 2 * kSquare;
      if (k_count - first >= kRows && columns - j >= kSquare) {
        interleave_rows<kRows, true>(rows + j, ld, kRows, kSquare, words);
      } else {
        interleave_rows<kRows, false>(rows + j, ld, k_count - first, columns - j, words);
      }
    }
  }
}

inline void pack_columns(const GemmProblem& problem, int64_t column, int64_t columns, const PackedColumns& to) {
  const int64_t most = block_k_of(problem.k);
  for (int64_t k_begin = 0; k_begin < problem.k; k_begin += most) {
    const int64_t k_count = at_most(problem.k - k_begin, most);
    pack_strips(problem, column, columns, k_begin, k_count, to.strip(k_begin, round_up(k_count, kTileK), column));
  }
}

// Packs strips [begin, end) of B into a packed operand (packed_operand.h).
inline void pack_for_amx(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  const int64_t column = begin * kPackedStrip, columns = at_most(problem.n, end * kPackedStrip) - column;
  pack_columns(problem, column, columns, {words, problem.n, 0});
}

// The packed columns of problem.packed_b, or none if B must be packed.
inline PackedColumns given_columns(const GemmProblem& problem) {
  const PackedOperand* const packed = problem.packed_b;
  if (packed == nullptr || packed->format != PackedFormat::kAmx) return {};
  if (packed->k != problem.k || problem.packed_column % kSquare != 0) return {};
  return {const_cast<float*>(packed->words), packed->n, problem.packed_column};
}
