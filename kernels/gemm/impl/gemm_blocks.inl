// The loops of gemm.h's "packed" and "bf16_dot": Goto & van de Geijn 2008 (as in BLIS). Words defines how operands are
// packed:
//
//   kFormat               format of a packed operand that it can read
//   kElementsPerWord      elements along k in a 32-bit word of a strip
//   Add                   what one step of the register tile does (micro_tile.inl)
//   pack_strips<kWidth>   like pack.inl's pack
//   kPacksWhileMultiplying
//                         whether the first tile that uses a strip of B stored [k, n] can pack it while multiplying

#include "kernels/gemm/impl/gemm_epilogue.inl"
#include "kernels/impl/micro_tile.inl"
#include "kernels/impl/pack.inl"

// Block sizes: a strip of A (kTileRows x kBlockWords words) stays in L1 while the strips of a block of B (kBlockWords x
// kBlockColumns, in L2) pass by; the panel of A (kPanelRows x kBlockWords) is in L3. kBlockWords also fixes the order
// of summation, so it must never depend on the problem. 384 compared with 256 and 192 (AVX2 on Zen 3, layers of 768): 3
// to 6 % faster, with fewer passes over C.
constexpr int64_t kBlockWords = 384;
constexpr int64_t kBlockColumns = 384 / kTileColumns * kTileColumns;
constexpr int64_t kPanelRows = 1536 / kTileRows * kTileRows;
constexpr int64_t kPanelColumns = 2048 / kBlockColumns * kBlockColumns;  // if sums are stored apart from C

template <class Words>
constexpr int64_t kBlockK = kBlockWords* Words::kElementsPerWord;

// Cache lines to prefetch while a tile accumulates, one row every few words of k: rows of C, and of the residual. Into
// L1, where the tile is stored, and spread out, because prefetching all at once takes the fill buffers that B needs.
// Layers of 768 and 4096 take 4 to 7 % less time than with either alone (Zen 4). Also prefetching the next strip of A:
// no gain.
struct PrefetchRows {
  const char* c;
  int64_t stride;                  // bytes between rows
  const char* residual = nullptr;  // may be null
  int64_t residual_stride = 0;

  static MS_INLINE void prefetch_row(const char* row) {
    for (int64_t byte = 0; byte < kTileColumns * 4; byte += 64) __builtin_prefetch(row + byte, 0, 3);
  }
  MS_INLINE void prefetch_next() {
    prefetch_row(c);
    c += stride;
    if (residual == nullptr) return;
    prefetch_row(residual);
    residual += residual_stride;
  }
};

// With a k this short the sums are done before C arrives. C is then prefetched two tiles earlier, also across the end
// of a row of tiles (a narrow block has four tiles per row). Weight gradients of 64 experts of 32 tokens reach 74 to 84
// % of the roofline, 1.37 to 1.75 times oneDNN's speed; one, three or four tiles earlier, or four into L2, are no
// better (one thread of Zen 4).
constexpr int64_t kShortWords = 128;

// A packed strip of A, from a word of k on.
struct PackedRows {
  const float* first;

  static constexpr int64_t row() { return 1; }  // words to the next one
  static constexpr int64_t step() { return kTileRows; }
  MS_INLINE PackedRows at(int64_t word) const { return {first + word * kTileRows}; }
};

// kTileRows rows of A where they are: stored along k, in words.
struct RowsInPlace {
  const float* first;
  int64_t ld;  // words

  MS_INLINE int64_t row() const { return ld; }
  static constexpr int64_t step() { return 1; }
  MS_INLINE RowsInPlace at(int64_t word) const { return {first + word, ld}; }
};

// A packed strip of B, read by add_steps.
struct PackedStrip {
  const float* b;

  template <class Add, class Rows>
  MS_INLINE void add(int64_t k_words, const Rows& a, TileSums<kTileRows>& sum) {
    add_steps<kTileRows, Add>(k_words, a.first, a.row(), a.step(), b, kTileColumns, sum);
    b += k_words * kTileColumns;
  }
};

// sum[i] += sum over p of a[i * a_row + p * a_step] * b[p * ldb, :], calling visit(p, v, x) for each vector x of a row
// of B. Prefetches B's rows, which are too far apart for the hardware prefetcher, into L1, and those at `ahead`, the
// next strip, into L2, where both fit. Saves 3 to 5 % of the time (64 experts of 32 tokens, one thread of Zen 4).
template <int kRows, class Rows, class T, class Visit>
MS_INLINE void add_unpacked_steps(int64_t k_words, const Rows& rows, const T* b, int64_t ldb, const T* ahead,
                                  const Visit& visit, TileSums<kRows>& sum) {
  const float* a = rows.first;
  for (int64_t p = 0; p < k_words; ++p) {
    Vec row[kTileVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVecs; ++v) {
      row[v] = load(b + v * kLanes);
      visit(p, v, row[v]);
      __builtin_prefetch(ahead + v * kLanes, 0, 2);
      __builtin_prefetch(b + 8 * ldb + v * kLanes);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec factor = broadcast(a[i * rows.row()]);
#pragma GCC unroll 8
      for (int v = 0; v < kTileVecs; ++v) sum[i][v] = fma(factor, row[v], sum[i][v]);
    }
    a += rows.step();
    b += ldb;
    ahead += ldb;
  }
}

// A packed strip whose tile also prefetches the source of the next strip: kTileColumns lines along k, starting at
// `next`. Forward products of 128 and 256 rows reach 1.04 and 0.97 of oneDNN's speed instead of 0.96 and 0.91; 1024
// rows: no change.
template <class Words, class T>
struct PrefetchingStrip {
  const float* b;
  const T* next;
  int64_t ld;

  template <class Add, class Rows>
  MS_INLINE void add(int64_t k_words, const Rows& a, TileSums<kTileRows>& sum) {
    for (int64_t line = 0; line < kTileColumns; ++line) __builtin_prefetch(next + line * ld, 0, 2);
    add_steps<kTileRows, Add>(k_words, a.first, a.row(), a.step(), b, kTileColumns, sum);
    b += k_words * kTileColumns, next += k_words * Words::kElementsPerWord;
  }
};

struct PackRows {
  float* strip;

  MS_INLINE void operator()(int64_t p, int v, Vec x) const { store(strip + p * kTileColumns + v * kLanes, x); }
};

// A strip of B stored [k, n] that is packed while it is multiplied: dgrad of 128 and 256 rows reaches 0.94 and 0.92 of
// oneDNN's speed instead of 0.82 and 0.87 (layers of 768, one thread of Zen 4).
template <class T>
struct UnpackedStrip {
  const T* b;
  int64_t ldb;
  float* packed;

  template <class Add, class Rows>
  MS_INLINE void add(int64_t k_words, const Rows& a, TileSums<kTileRows>& sum) {
    add_unpacked_steps<kTileRows>(k_words, a, b, ldb, b + kTileColumns, PackRows{packed}, sum);
    b += k_words * ldb, packed += k_words * kTileColumns;
  }
};

// The sums of a strip of A times a strip of B, with prefetches in between.
template <class Add, class Rows, class Strip>
MS_INLINE void prefetching_sums(int64_t k_words, const Rows& a, Strip b, PrefetchRows to_prefetch,
                                TileSums<kTileRows>& sum) {
  constexpr int64_t kMaxWords = 16;  // 8 to 32 are equally fast
  clear_tile<kTileRows>(sum);
  const int64_t most = k_words < kTileRows ? 1 : at_most(k_words / kTileRows, kMaxWords);
  int64_t rows = 0;
  for (int64_t p = 0; p < k_words; p += most, ++rows) {
    if (rows < kTileRows) to_prefetch.prefetch_next();
    b.template add<Add>(at_most(k_words - p, most), a.at(p), sum);
  }
}

// Offset, from the start of a row of tiles, of the tile two after the one at column j.
inline int64_t two_tiles_on(int64_t j, int64_t width, int64_t ldc) {
  const int64_t end = (width + kTileColumns - 1) / kTileColumns * kTileColumns, column = j + 2 * kTileColumns;
  return column < end || end < 2 * kTileColumns ? column : kTileRows * ldc + column - end;
}

// c (+)= edge, whose rows are kTileColumns apart.
inline void store_edge(const float* edge, int64_t rows, int64_t columns, bool accumulate, float* c, int64_t ldc) {
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

// One strip of A times one of B. rows <= kTileRows, columns <= kTileColumns; edges go through a buffer, so that
// every element gets the same arithmetic.
template <class Words, class Rows, class Strip>
void packed_tile(int64_t k_words, const Rows& a, const Strip& b, int64_t rows, int64_t columns, bool accumulate,
                 float* c, int64_t ldc, const PrefetchRows& to_prefetch) {
  TileSums<kTileRows> sum;
  prefetching_sums<typename Words::Add>(k_words, a, b, to_prefetch, sum);
  if (rows == kTileRows && columns == kTileColumns) return store_tile<kTileRows>(sum, accumulate, c, ldc);
  alignas(64) float edge[kTileRows * kTileColumns];
  store_tile<kTileRows>(sum, false, edge, kTileColumns);
  store_edge(edge, rows, columns, accumulate, c, ldc);
}

// Rows that the tile at `row`, `column` writes, and reads, after the last block of k.
inline PrefetchRows rows_of_last_tile(const GemmProblem& problem, int64_t row, int64_t column) {
  const int64_t bytes = gemm_type_bytes(problem.c_type), stride = problem.ldc * bytes;
  const char* const c = static_cast<const char*>(problem.c) + row * stride + column * bytes;
  if (problem.epilogue.residual == nullptr) return {c, stride};
  const int64_t residual_stride = problem.epilogue.ld_residual * bytes;
  return {c, stride, static_cast<const char*>(problem.epilogue.residual) + row * residual_stride + column * bytes,
          residual_stride};
}

// packed_tile for the last block of k if sums are stored apart from C: adds the earlier sums, if any, from `sums` and
// writes the result to C at `row`, `column`.
template <class Words, class Rows, class Strip>
void last_tile(const GemmProblem& problem, int64_t k_words, const Rows& a, const Strip& b, int64_t row, int64_t column,
               int64_t rows, int64_t columns, const float* sums, int64_t ld) {
  alignas(64) float tile[kTileRows * kTileColumns];
  TileSums<kTileRows> sum;
  prefetching_sums<typename Words::Add>(k_words, a, b, rows_of_last_tile(problem, row, column), sum);
  store_tile<kTileRows>(sum, false, tile, kTileColumns);
  for (int64_t i = 0; i < rows; ++i) {
    float* const line = tile + i * kTileColumns;
    if (sums != nullptr) {
      int64_t j = 0;
      for (; j + kLanes <= columns; j += kLanes) store(line + j, load(sums + i * ld + j) + load(line + j));
      for (; j < columns; ++j) line[j] = sums[i * ld + j] + line[j];
    }
    finish_row(problem, row + i, column, line, columns);
  }
}

// A part of C whose sums accumulate over blocks of k: in C itself, or apart from a 16-bit C.
struct GemmPanel {
  int64_t row, rows, column, columns;
  bool finish;  // apply the epilogue or rounding at the end
  float* sums;  // of the panel's first element; null if sums are apart from C and there is only one block of k
  int64_t ld;
};

// A packed operand is stored by blocks of k, each with the strips of all columns. Returns the offset of the strips from
// `column` (of n columns) on, in the block that begins at `k_begin` and has `k_words` words per column.
template <class Words>
int64_t packed_at(int64_t n, int64_t k_begin, int64_t k_words, int64_t column) {
  return k_begin / Words::kElementsPerWord * packed_strips(n) * kPackedStrip + column * k_words;
}

// Packs strips [begin, end) of B into a packed operand (packed_operand.h).
template <class Words, class B>
void pack_whole_strips(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  const auto* const b = static_cast<const B*>(problem.b);
  const int64_t column = begin * kPackedStrip, width = at_most(problem.n - column, (end - begin) * kPackedStrip);
  for (int64_t k_begin = 0; k_begin < problem.k; k_begin += kBlockK<Words>) {
    const int64_t block_k = at_most(problem.k - k_begin, kBlockK<Words>),
                  k_words = (block_k + Words::kElementsPerWord - 1) / Words::kElementsPerWord;
    Words::template pack_strips<kTileColumns>(
        problem.transpose_b ? b + column * problem.ldb + k_begin : b + k_begin * problem.ldb + column, problem.ldb,
        problem.transpose_b, width, block_k, words + packed_at<Words>(problem.n, k_begin, k_words, column));
  }
}

// The packed B, or null if gemm must pack B itself.
template <class Words>
const PackedOperand* readable(const GemmProblem& problem) {
  const PackedOperand* const packed = problem.packed_b;
  if (packed == nullptr || packed->format != Words::kFormat) return nullptr;
  return packed->k == problem.k && problem.packed_column % kTileColumns == 0 ? packed : nullptr;
}

// Place of a tile in a panel: `block_k` elements of k from `k_begin` on, first row `row`, column `block` + `j`, in a
// block of `width` columns.
struct TilePlace {
  int64_t k_begin, block_k, k_words, row, block, width, j;
};

template <class Words, class Rows, class Strip>
MS_INLINE void panel_tile(const GemmProblem& problem, const GemmPanel& panel, const TilePlace& at, const Rows& a,
                          const Strip& b) {
  const int64_t rows = at_most(panel.rows - at.row, kTileRows), columns = at_most(at.width - at.j, kTileColumns);
  const int64_t column = at.block + at.j;
  float* const sums = panel.sums == nullptr ? nullptr : panel.sums + at.row * panel.ld + column;
  if (panel.finish && at.k_begin + at.block_k == problem.k) {
    last_tile<Words>(problem, at.k_words, a, b, panel.row + at.row, panel.column + column, rows, columns,
                     at.k_begin > 0 ? sums : nullptr, panel.ld);
    return;
  }
  const int64_t further = at.k_words <= kShortWords ? two_tiles_on(at.j, at.width, panel.ld) - at.j : 0;
  packed_tile<Words>(at.k_words, a, b, rows, columns, problem.accumulate || at.k_begin > 0, sums, panel.ld,
                     {reinterpret_cast<const char*>(sums + further), 4 * panel.ld});
}

// The first tile of a column of tiles, which packs the strip of B; b: start of the block.
template <class Words, class Rows, class B>
MS_INLINE void first_tile(const GemmProblem& problem, const GemmPanel& panel, const TilePlace& at, const Rows& a,
                          const B* b, float* strip) {
  const int64_t columns = at_most(at.width - at.j, kTileColumns), ld = problem.ldb;
  b += problem.transpose_b ? at.j * ld : at.j;
  if constexpr (Words::kPacksWhileMultiplying) {
    if (!problem.transpose_b && columns == kTileColumns) {
      return panel_tile<Words>(problem, panel, at, a, UnpackedStrip<B>{b, ld, strip});
    }
  }
  Words::template pack_strips<kTileColumns>(b, ld, problem.transpose_b, columns, at.block_k, strip);
  if (!problem.transpose_b) return panel_tile<Words>(problem, panel, at, a, PackedStrip{strip});
  panel_tile<Words>(problem, panel, at, a, PrefetchingStrip<Words, B>{strip, b + kTileColumns * ld, ld});
}

// A block of a panel's tiles in a row.
template <class Words, class Rows, class B>
MS_INLINE void row_of_tiles(const GemmProblem& problem, const GemmPanel& panel, TilePlace at, const Rows& a,
                            const B* b_block, const float* strips, float* packed_b) {
  for (at.j = 0; at.j < at.width; at.j += kTileColumns) {
    if (packed_b != nullptr) {
      first_tile<Words>(problem, panel, at, a, b_block, packed_b + at.j * at.k_words);
    } else {
      panel_tile<Words>(problem, panel, at, a, PackedStrip{strips + at.j * at.k_words});
    }
  }
  poll_progress();
}

// Whether rows of A are read where they are, instead of being packed: words along k follow one another there, too. bf16
// products of 512 rows by 64, 192 and 384 columns are 9, 5 and 2 % faster; fp32 ones 0 to 3 % (one thread of Zen 4).
// With many columns the packed strip pays; with few words of k rows begin too often; and 12 rows 2 KiB apart share a
// few sets of L1, which lose them before all their words are read.
template <class Words, class A>
bool reads_rows_in_place(const GemmProblem& problem, int64_t columns) {
  constexpr int64_t kWord = Words::kElementsPerWord, kMostColumns = 512, kSetStride = 2048;
  if (sizeof(A) * kWord != sizeof(float) || problem.transpose_a || columns > kMostColumns) return false;
  const int64_t stride = problem.lda * static_cast<int64_t>(sizeof(A));
  if (reinterpret_cast<uintptr_t>(problem.a) % alignof(float) != 0) return false;
  return problem.k > kShortWords * kWord && problem.lda % kWord == 0 && problem.k % kWord == 0 &&
         stride % kSetStride != 0;
}

template <class Words, class A, class B>
void gemm_panel(const GemmProblem& problem, const GemmPanel& panel, float* packed_a, float* packed_b) {
  const PackedOperand* const ready = readable<Words>(problem);
  const auto* const a = static_cast<const A*>(problem.a);
  const auto* const b = static_cast<const B*>(problem.b);
  const bool in_place = reads_rows_in_place<Words, A>(problem, panel.columns);
  for (int64_t k_begin = 0; k_begin < problem.k; k_begin += kBlockK<Words>) {
    const int64_t block_k = at_most(problem.k - k_begin, kBlockK<Words>),
                  k_words = (block_k + Words::kElementsPerWord - 1) / Words::kElementsPerWord;
    const A* a_panel =
        problem.transpose_a ? a + k_begin * problem.lda + panel.row : a + panel.row * problem.lda + k_begin;
    const int64_t whole = in_place ? panel.rows / kTileRows * kTileRows : 0;
    if (whole < panel.rows) {
      Words::template pack_strips<kTileRows>(a_panel + (in_place ? whole * problem.lda : 0), problem.lda,
                                             !problem.transpose_a, panel.rows - whole, block_k, packed_a);
    }
    for (int64_t block = 0; block < panel.columns; block += kBlockColumns) {
      const int64_t width = at_most(panel.columns - block, kBlockColumns), column = panel.column + block;
      const B* b_block = problem.transpose_b ? b + column * problem.ldb + k_begin : b + k_begin * problem.ldb + column;
      const float* const strips = ready == nullptr ? packed_b
                                                   : ready->words + packed_at<Words>(ready->n, k_begin, k_words,
                                                                                     problem.packed_column + column);
      for (int64_t i = 0; i < panel.rows; i += kTileRows) {
        const TilePlace at{k_begin, block_k, k_words, i, block, width, 0};
        float* const to_pack = i == 0 && ready == nullptr ? packed_b : nullptr;
        if (i < whole) {
          const RowsInPlace rows{reinterpret_cast<const float*>(a_panel + i * problem.lda),
                                 problem.lda / Words::kElementsPerWord};
          row_of_tiles<Words>(problem, panel, at, rows, b_block, strips, to_pack);
        } else {
          row_of_tiles<Words>(problem, panel, at, PackedRows{packed_a + (i - whole) * k_words}, b_block, strips,
                              to_pack);
        }
      }
    }
  }
}

template <class Words, class A, class B>
void gemm_blocks(const GemmProblem& problem, GemmScratch& scratch) {
  const bool apart = problem.c_type != GemmType::kFp32, finish = apart || problem.epilogue.any();
  const int64_t m = problem.m, n = problem.n,
                k_words = (problem.k + Words::kElementsPerWord - 1) / Words::kElementsPerWord;
  const int64_t most_rows = at_most(m, kPanelRows), most_columns = apart ? at_most(n, kPanelColumns) : n;
  const int64_t max_k_words = at_most(k_words, kBlockWords);
  float* const packed_a = scratch.packed_a(packed_floats<kTileRows>(most_rows, max_k_words));
  float* const packed_b = scratch.packed_b(packed_floats<kTileColumns>(at_most(n, kBlockColumns), max_k_words));
  float* const sums = apart && problem.k > kBlockK<Words> ? scratch.sums(most_rows * most_columns) : nullptr;
  for (int64_t column = 0; column < n; column += most_columns) {
    for (int64_t row = 0; row < m; row += most_rows) {
      GemmPanel panel{row,         at_most(m - row, most_rows), column, at_most(n - column, most_columns), finish, sums,
                      most_columns};
      if (!apart) panel.sums = static_cast<float*>(problem.c) + row * problem.ldc + column, panel.ld = problem.ldc;
      gemm_panel<Words, A, B>(problem, panel, packed_a, packed_b);
    }
  }
}
