// The "amx" implementation of gemm.h. A tile register holds 16 rows of 64 bytes: of A 16 rows of 32 terms of k, of B 16
// pairs of terms (pack_pairs.inl) of 16 columns, of C 16 x 16 sums (Intel's Software Developer's Manual, TDPBF16PS).
//
// Blocks, for 2 MiB of L2 and tiles that eat operands faster than L3 gives them (Sapphire Rapids: 80 % of the speed
// with a strip of B in L1 and A in L2, 35 % with A in L3): a strip of B, 32 columns of a depth, stays in L1 while a
// panel of A, packed, passes by; sums of several depths stay in L2.

#include "kernels/impl/gemm_epilogue.inl"
#include "kernels/impl/pack.inl"
#include "kernels/impl/pack_pairs.inl"

constexpr int64_t kTileTerms = 32;           // of A, in a row
constexpr int64_t kTileLines = 16;           // rows of A, columns of B
constexpr int64_t kSquare = 2 * kTileLines;  // of C, four registers: 2 x 2 tiles
constexpr int64_t kSquareSums = kSquare * kSquare;
constexpr int64_t kSquareStep = kSquare * kTileTerms;  // elements of A, or of B, of a step of a square
constexpr int64_t kMostDepth = 512;                    // terms: a strip of B is 32 KiB
constexpr int64_t kPanelTerms = 4096;                  // packed of A: 4 MiB
constexpr int64_t kPanelRows = 512;                    // of a depth, 512 KiB of A
constexpr int64_t kBlockColumns = 512;                 // of a panel's rows, 1 MiB of sums
constexpr int64_t kPanelColumns = 2048;                // of which sums are kept where k is longer than a panel

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Terms of k that are multiplied at once. It fixes the layout of packed operands: it may depend on k alone.
inline int64_t depth_of(int64_t k) {
  const int64_t depths = (k + kMostDepth - 1) / kMostDepth;
  return round_up((k + depths - 1) / depths, kTileTerms);
}

// The tile registers, in use while this lives: after that the system has no tiles to save when threads change.
class TilesInUse {
 public:
  TilesInUse() {
    struct alignas(64) Layout {
      uint8_t palette = 1, first_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Layout kLayout;
    // Not _tile_loadconfig, whose operand GCC 12 takes to be shorter than 64 bytes.
    asm volatile("ldtilecfg %0" : : "m"(kLayout));
  }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// GCC's tile loads and stores do not say what memory they touch: nothing may cross this.
MS_INLINE void memory_barrier() { asm volatile("" : : : "memory"); }

// A line of 32 terms, of which the first `terms` are there.
MS_INLINE __m512i load_terms(const bf16* source, int64_t terms) {
  const auto there = static_cast<__mmask32>(terms >= 32 ? ~0U : (1U << terms) - 1);
  return _mm512_maskz_loadu_epi16(there, source);
}

// Where the tile of rows [row, row + 16) lies in packed A, of a depth that takes `depth` terms of a row.
inline bf16* tile_of(bf16* packed, int64_t row, int64_t depth) {
  return packed + row / kSquare * kSquare * depth + row % kSquare * kTileTerms;
}

// Packs rows of A that are contiguous in memory: a square's rows after the other, of each step its two tiles. Behind
// the last term and, within a tile, behind the last row stands 0.
inline void pack_rows(const bf16* a, int64_t lda, int64_t rows, int64_t terms, bf16* packed) {
  const int64_t depth = round_up(terms, kTileTerms);
  for (int64_t row = 0; row < rows; row += kTileLines) {
    bf16* target = tile_of(packed, row, depth);
    const int64_t there = at_most(rows - row, kTileLines);
    for (int64_t term = 0; term < terms; term += kTileTerms, target += kSquareStep) {
      for (int64_t i = 0; i < kTileLines; ++i) {
        const __m512i line = i < there ? load_terms(a + (row + i) * lda + term, terms - term) : _mm512_setzero_si512();
        _mm512_store_si512(target + i * kTileTerms, line);
      }
    }
  }
}

// The same of A that is stored [k, m].
inline void pack_rows_across(const bf16* a, int64_t lda, int64_t rows, int64_t terms, bf16* packed) {
  const int64_t depth = round_up(terms, kTileTerms);
  for (int64_t term = 0; term < depth; term += kTileTerms) {
    for (int64_t row = 0; row < rows; row += kTileLines) {
      auto* const target = reinterpret_cast<float*>(tile_of(packed, row, depth) + term / kTileTerms * kSquareStep);
      for (int64_t pair = 0; pair < kTileTerms / 2; pair += 4) {
        Vec pairs[4];
#pragma GCC unroll 4
        for (int64_t i = 0; i < 4; ++i) {
          const int64_t first = term + 2 * (pair + i);
          pairs[i] = _mm512_castsi512_ps(load_pairs(a + first * lda + row, lda, terms - first, rows - row));
        }
        store_turned(pairs, target + pair, kTileTerms / 2);
      }
    }
  }
}

// Packs a strip of B, 32 columns from `column` on, over `terms` of k from `term` on.
inline void pack_strip(const GemmProblem& problem, int64_t column, int64_t term, int64_t terms, float* target) {
  const auto* const b = static_cast<const bf16*>(problem.b);
  pack_pairs<kSquare>(problem.transpose_b ? b + column * problem.ldb + term : b + term * problem.ldb + column,
                      problem.ldb, problem.transpose_b, at_most(problem.n - column, kSquare), terms, target);
  const int64_t pairs = (terms + 1) / 2, all = round_up(terms, kTileTerms) / 2;
  for (int64_t word = pairs * kSquare; word < all * kSquare; word += kLanes) store(target + word, zero());
}

// A packed operand, depth after depth, of each all strips: where the strip of `column` lies.
inline int64_t packed_at(int64_t n, int64_t term, int64_t depth, int64_t column) {
  return term / 2 * packed_strips(n) * kPackedStrip + column * (depth / 2);
}

// Strips [begin, end) of B into a packed operand (packed_operand.h).
inline void pack_for_amx(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  const int64_t most = depth_of(problem.k);
  for (int64_t term = 0; term < problem.k; term += most) {
    const int64_t terms = at_most(problem.k - term, most), depth = round_up(terms, kTileTerms);
    for (int64_t column = begin * kPackedStrip; column < at_most(end * kPackedStrip, problem.n); column += kSquare) {
      pack_strip(problem, column, term, terms, words + packed_at(problem.n, term, depth, column));
    }
  }
}

// Null where it has to pack B itself.
inline const PackedOperand* readable(const GemmProblem& problem) {
  const PackedOperand* const packed = problem.packed_b;
  if (packed == nullptr || packed->format != PackedFormat::kAmx) return nullptr;
  return packed->k == problem.k && problem.packed_column % kSquare == 0 ? packed : nullptr;
}

// Adds `steps` steps of packed A and B to the sums in tiles 0 to 3; of A's two tiles the second if there is one.
template <bool kBoth>
MS_INLINE void multiply_steps(int64_t steps, const bf16*& a, const float*& b) {
  for (; steps > 0; --steps, a += kSquareStep, b += kSquareStep / 2) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, kSquare * 4);
    _tile_loadd(7, b + kTileLines, kSquare * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!kBoth) continue;
    _tile_loadd(5, a + kTileLines * kTileTerms, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// What comes into L1 while a square is multiplied, a row every step: C's rows, if they are read.
struct AskedLines {
  const char* at = nullptr;
  int64_t stride = 0, rows = 0;
};

// sums (+)= a strip of packed A times one of packed B.
template <bool kBoth>
void square_sums(int64_t steps, const bf16* a, const float* b, AskedLines asked, bool add, float* sums) {
  memory_barrier();
  float* const below = sums + kTileLines * kSquare;
  if (add) {
    _tile_loadd(0, sums, kSquare * 4);
    _tile_loadd(1, sums + kTileLines, kSquare * 4);
    if (kBoth) _tile_loadd(2, below, kSquare * 4);
    if (kBoth) _tile_loadd(3, below + kTileLines, kSquare * 4);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (kBoth) _tile_zero(2);
    if (kBoth) _tile_zero(3);
  }
  for (; asked.rows > 0 && steps > 0; --asked.rows, --steps, asked.at += asked.stride) {
    __builtin_prefetch(asked.at);
    __builtin_prefetch(asked.at + 64);
    multiply_steps<kBoth>(1, a, b);
  }
  multiply_steps<kBoth>(steps, a, b);
  _tile_stored(0, sums, kSquare * 4);
  _tile_stored(1, sums + kTileLines, kSquare * 4);
  if (kBoth) _tile_stored(2, below, kSquare * 4);
  if (kBoth) _tile_stored(3, below + kTileLines, kSquare * 4);
  memory_barrier();
}

MS_INLINE void add_row(const float* sums, int64_t n, float* c) {
  for (int64_t j = 0; j < n; j += kLanes) {
    const int64_t left = n - j;
    if (left >= kLanes) {
      store(c + j, load(c + j) + load(sums + j));
    } else {
      store_partial(c + j, load_partial(c + j, left) + load(sums + j), left);
    }
  }
}

// Whole sums of a square at `row`, `column` into C.
inline void finish_square(const GemmProblem& problem, int64_t row, int64_t column, const float* sums) {
  const int64_t rows = at_most(problem.m - row, kSquare), columns = at_most(problem.n - column, kSquare);
  if (problem.accumulate) {
    float* const c = static_cast<float*>(problem.c) + row * problem.ldc + column;
    for (int64_t i = 0; i < rows; ++i) add_row(sums + i * kSquare, columns, c + i * problem.ldc);
  } else if (columns == kSquare && problem.c_type == GemmType::kBf16 && !problem.epilogue.there()) {
    bf16* c = static_cast<bf16*>(problem.c) + row * problem.ldc + column;
    for (int64_t i = 0; i < rows; ++i, c += problem.ldc, sums += kSquare) {
      store(c, load(sums));
      store(c + kLanes, load(sums + kLanes));
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) finish_row(problem, row + i, column, sums + i * kSquare, columns);
  }
}

inline AskedLines lines_of_square(const GemmProblem& problem, int64_t row, int64_t column) {
  const int64_t bytes = gemm_type_bytes(problem.c_type);
  const int64_t rows = at_most(problem.m - row, kSquare);
  if (problem.accumulate) {
    return {static_cast<const char*>(problem.c) + (row * problem.ldc + column) * bytes, problem.ldc * bytes, rows};
  }
  if (problem.epilogue.residual == nullptr) return {};
  const int64_t ld = problem.epilogue.ld_residual;
  return {static_cast<const char*>(problem.epilogue.residual) + (row * ld + column) * bytes, ld * bytes, rows};
}

// Rows of C from `row` on, of columns from `column` on; k from `first` to `last`.
struct AmxPanel {
  int64_t row, rows, column, columns, first, last;
};

// One depth of a block of a panel's columns: B by strips, past all of A. sums: of the block's first square.
inline void multiply_block(const GemmProblem& problem, const AmxPanel& block, const PackedOperand* ready,
                           const bf16* packed_a, float* packed_b, float* sums) {
  const int64_t term = block.first, terms = block.last - term, depth = round_up(terms, kTileTerms);
  const bool last = block.last == problem.k, alone = term == 0 && last;  // one depth needs sums of one square
  for (int64_t j = 0; j < block.columns; j += kSquare) {
    const int64_t column = block.column + j;
    if (ready == nullptr) pack_strip(problem, column, term, terms, packed_b);
    const float* const b =
        ready == nullptr ? packed_b : ready->words + packed_at(ready->n, term, depth, problem.packed_column + column);
    for (int64_t i = 0; i < block.rows; i += kSquare) {
      const AskedLines asked = last ? lines_of_square(problem, block.row + i, column) : AskedLines();
      const bf16* const a = packed_a + i * depth;
      if (block.rows - i > kTileLines) {
        square_sums<true>(depth / kTileTerms, a, b, asked, term > 0, sums);
      } else {
        square_sums<false>(depth / kTileTerms, a, b, asked, term > 0, sums);
      }
      if (last) finish_square(problem, block.row + i, column, sums);
      if (!alone) sums += kSquareSums;
    }
  }
}

// Packs the panel's A, depth after depth, and multiplies. sums: of the panel's first square, or of one.
inline void multiply_panel(const GemmProblem& problem, const AmxPanel& panel, int64_t most, bf16* packed_a,
                           float* packed_b, float* sums) {
  const auto* const a = static_cast<const bf16*>(problem.a);
  const int64_t rows = round_up(panel.rows, kSquare), k = problem.k;
  for (int64_t term = panel.first; term < panel.last; term += most) {
    const int64_t terms = at_most(panel.last - term, most);
    bf16* const target = packed_a + (term - panel.first) * rows;
    if (problem.transpose_a) {
      pack_rows_across(a + term * problem.lda + panel.row, problem.lda, panel.rows, terms, target);
    } else {
      pack_rows(a + panel.row * problem.lda + term, problem.lda, panel.rows, terms, target);
    }
  }
  const PackedOperand* const ready = readable(problem);
  const bool whole = panel.first == 0 && panel.last == k;  // then no block's sums are needed after it
  for (int64_t column = 0; column < panel.columns; column += kBlockColumns) {
    AmxPanel block = panel;
    block.column = panel.column + column, block.columns = at_most(panel.columns - column, kBlockColumns);
    for (int64_t term = panel.first; term < panel.last; term += most) {
      block.first = term, block.last = at_most(panel.last, term + most);
      multiply_block(problem, block, ready, packed_a + (term - panel.first) * rows, packed_b,
                     whole ? sums : sums + column * rows);
    }
  }
}

inline void gemm_amx(const GemmProblem& problem, GemmScratch& scratch) {
  const TilesInUse tiles;
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const int64_t most = depth_of(k), most_terms = at_most(round_up(k, kTileTerms), kPanelTerms / most * most);
  const int64_t most_rows = at_most(m, kPanelRows), rows = round_up(most_rows, kSquare);
  const bool one_panel = k <= most_terms;
  const int64_t most_columns = one_panel ? n : at_most(n, kPanelColumns);
  const int64_t kept_columns = round_up(one_panel ? at_most(n, kBlockColumns) : most_columns, kSquare);
  auto* const packed_a = reinterpret_cast<bf16*>(scratch.packed_a(rows * most_terms / 2));
  float* const packed_b = scratch.packed_b(kSquare * most / 2);
  float* const sums = scratch.sums(k <= most ? kSquareSums : rows * kept_columns);
  for (int64_t column = 0; column < n; column += most_columns) {
    for (int64_t row = 0; row < m; row += most_rows) {
      for (int64_t term = 0; term < k; term += most_terms) {
        multiply_panel(problem,
                       {row, at_most(m - row, most_rows), column, at_most(n - column, most_columns), term,
                        at_most(k, term + most_terms)},
                       most, packed_a, packed_b, sums);
      }
    }
  }
}
