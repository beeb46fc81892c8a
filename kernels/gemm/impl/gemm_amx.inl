// The "amx" implementation of gemm.h. A tile register holds 16 rows of 64 bytes: for A, 16 rows of 32 elements along k;
// for B, 16 pairs of elements along k (pack_pairs.inl) of 16 columns; for C, 16 x 16 sums (Intel's Software Developer's
// Manual, TDPBF16PS).
//
// amx.h includes the tile intrinsics, TilesInUse and memory_barrier before this body.
//
// Block sizes fit 2 MiB of L2, because tiles consume operands faster than L3 delivers them (Sapphire Rapids: 80 % of
// peak with a strip of B in L1 and A in L2, 35 % with A in L3). A strip of B, 32 columns of one block of k, stays in L1
// while a packed panel of A passes by; the sums of several blocks of k stay in L2.

#include "kernels/gemm/impl/gemm_epilogue.inl"
#include "kernels/gemm/impl/pack_amx.inl"

constexpr int64_t kSquareSums = kSquare * kSquare;
constexpr int64_t kPanelK = 4096;       // k of a packed panel of A: 4 MiB
constexpr int64_t kPanelRows = 512;     // 512 KiB of A per block of k
constexpr int64_t kBlockColumns = 512;  // 1 MiB of sums for a panel's rows
constexpr int64_t kPackedAtOnce = 128;  // columns of B packed at a time if one panel holds all rows: 128 KiB
constexpr int64_t kKeptElements = int64_t{8} << 20;  // otherwise, elements of packed B that are kept: 16 MiB
constexpr int64_t kPanelColumns = 2048;              // columns whose sums are kept if k is longer than a panel

// Adds `steps` steps of packed A and B to the sums in tiles 0 to 3; kBoth: A has two tiles, otherwise only the first.
template <bool kBoth>
MS_INLINE void multiply_steps(int64_t steps, const bf16*& a, const float*& b) {
  for (; steps > 0; --steps, a += kSquareStep, b += kSquareStep / 2) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, kSquare * 4);
    _tile_loadd(7, b + kTileLines, kSquare * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (!kBoth) continue;
    _tile_loadd(5, a + kTileLines * kTileK, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Cache lines to prefetch into L1 while a square is multiplied, one row per step: rows of C, if they are read.
struct PrefetchLines {
  const char* at = nullptr;
  int64_t stride = 0, rows = 0;
};

// sums (+)= a strip of packed A times a strip of packed B. lines: by reference, because a copy on the stack is written
// in words and read in vectors, which waits until all stores before it, those of C too, have left the store buffer.
template <bool kBoth>
void square_sums(int64_t steps, const bf16* a, const float* b, const PrefetchLines& lines, bool add, float* sums) {
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
  const int64_t prefetched = at_most(lines.rows, steps);
  const char* line = lines.at;
  for (int64_t row = 0; row < prefetched; ++row, line += lines.stride) {
    __builtin_prefetch(line);
    __builtin_prefetch(line + 64);
    multiply_steps<kBoth>(1, a, b);
  }
  multiply_steps<kBoth>(steps - prefetched, a, b);
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

// Writes the complete sums of the square at `row`, `column` to C.
inline void finish_square(const GemmProblem& problem, int64_t row, int64_t column, const float* sums) {
  const int64_t rows = at_most(problem.m - row, kSquare), columns = at_most(problem.n - column, kSquare);
  if (problem.accumulate) {
    float* const c = static_cast<float*>(problem.c) + row * problem.ldc + column;
    for (int64_t i = 0; i < rows; ++i) add_row(sums + i * kSquare, columns, c + i * problem.ldc);
  } else if (columns == kSquare && problem.c_type == GemmType::kBf16 && !problem.epilogue.any()) {
    bf16* c = static_cast<bf16*>(problem.c) + row * problem.ldc + column;
    for (int64_t i = 0; i < rows; ++i, c += problem.ldc, sums += kSquare) {
      store(c, load(sums));
      store(c + kLanes, load(sums + kLanes));
    }
  } else {
    for (int64_t i = 0; i < rows; ++i) finish_row(problem, row + i, column, sums + i * kSquare, columns);
  }
}

inline PrefetchLines lines_of_square(const GemmProblem& problem, int64_t row, int64_t column) {
  const int64_t bytes = gemm_type_bytes(problem.c_type);
  const int64_t rows = at_most(problem.m - row, kSquare);
  if (problem.accumulate) {
    return {static_cast<const char*>(problem.c) + (row * problem.ldc + column) * bytes, problem.ldc * bytes, rows};
  }
  if (problem.epilogue.residual == nullptr) return {};
  const int64_t ld = problem.epilogue.ld_residual;
  return {static_cast<const char*>(problem.epilogue.residual) + (row * ld + column) * bytes, ld * bytes, rows};
}

// Rows of C from `row`, columns from `column`; k from `first` to `last`.
struct AmxPanel {
  int64_t row, rows, column, columns, first, last;
};

// One block of k: strips of B, each multiplied with all of A. ready: the columns of B that are packed already, if any.
// sums: those of the block's first square.
inline void multiply_block(const GemmProblem& problem, const AmxPanel& block, const PackedColumns& ready,
                           const bf16* packed_a, float* packed_b, float* sums) {
  const int64_t k_begin = block.first, k_count = block.last - k_begin, block_k = round_up(k_count, kTileK);
  const bool last = block.last == problem.k, alone = k_begin == 0 && last;  // then one square of sums
  const float* b = packed_b;
  for (int64_t j = 0; j < block.columns; j += kSquare, b += kSquare * block_k / 2) {
    const int64_t column = block.column + j;
    if (ready.words != nullptr) {
      b = ready.strip(k_begin, block_k, column);
    } else if (j % kPackedAtOnce == 0) {
      pack_strips(problem, column, at_most(block.columns - j, kPackedAtOnce), k_begin, k_count, packed_b);
      b = packed_b;
    }
    for (int64_t i = 0; i < block.rows; i += kSquare) {
      const PrefetchLines to_prefetch = last ? lines_of_square(problem, block.row + i, column) : PrefetchLines();
      const bf16* const a = packed_a + i * block_k;
      if (block.rows - i > kTileLines) {
        square_sums<true>(block_k / kTileK, a, b, to_prefetch, k_begin > 0, sums);
      } else {
        square_sums<false>(block_k / kTileK, a, b, to_prefetch, k_begin > 0, sums);
      }
      if (last) finish_square(problem, block.row + i, column, sums);
      if (!alone) sums += kSquareSums;
    }
  }
}

// Packs the panel's A, one block of k after another, and multiplies. sums: of the panel's first square, or of one
// square.
inline void multiply_panel(const GemmProblem& problem, const AmxPanel& panel, const PackedColumns& ready, int64_t most,
                           bf16* packed_a, float* packed_b, float* sums) {
  const auto* const a = static_cast<const bf16*>(problem.a);
  const int64_t rows = round_up(panel.rows, kSquare), k = problem.k;
  for (int64_t k_begin = panel.first; k_begin < panel.last; k_begin += most) {
    const int64_t k_count = at_most(panel.last - k_begin, most);
    bf16* const target = packed_a + (k_begin - panel.first) * rows;
    if (problem.transpose_a) {
      pack_rows_across(a + k_begin * problem.lda + panel.row, problem.lda, panel.rows, k_count, target);
    } else {
      pack_rows(a + panel.row * problem.lda + k_begin, problem.lda, panel.rows, k_count, target);
    }
  }
  const bool whole = panel.first == 0 && panel.last == k;  // no block's sums are needed afterwards
  for (int64_t column = 0; column < panel.columns; column += kBlockColumns) {
    AmxPanel block = panel;
    block.column = panel.column + column, block.columns = at_most(panel.columns - column, kBlockColumns);
    for (int64_t k_begin = panel.first; k_begin < panel.last; k_begin += most) {
      block.first = k_begin, block.last = at_most(panel.last, k_begin + most);
      multiply_block(problem, block, ready, packed_a + (k_begin - panel.first) * rows, packed_b,
                     whole ? sums : sums + column * rows);
      poll_progress();
    }
  }
}

inline void gemm_amx(const GemmProblem& problem, GemmScratch& scratch) {
  const TilesInUse tiles;
  const int64_t m = problem.m, n = problem.n, k = problem.k;
  const int64_t most = block_k_of(k), panel_k = at_most(round_up(k, kTileK), kPanelK / most * most);
  const int64_t most_rows = at_most(m, kPanelRows), rows = round_up(most_rows, kSquare);
  const bool one_panel = k <= panel_k;
  PackedColumns ready = given_columns(problem);
  const bool keep = ready.words == nullptr && one_panel && m > most_rows;  // keep packed B for all panels of rows
  const int64_t most_columns = keep ? at_most(n, kKeptElements / panel_k / kBlockColumns * kBlockColumns)
                                    : at_most(n, one_panel ? n : kPanelColumns);
  const int64_t sums_columns = round_up(one_panel ? at_most(n, kBlockColumns) : most_columns, kSquare);
  auto* const packed_a = reinterpret_cast<bf16*>(scratch.packed_a(rows * panel_k / 2));
  float* const packed_b =
      scratch.packed_b(keep ? packed_words(PackedFormat::kAmx, most_columns, k) : kPackedAtOnce * most / 2);
  float* const sums = scratch.sums(k <= most ? kSquareSums : rows * sums_columns);
  for (int64_t column = 0; column < n; column += most_columns) {
    const int64_t columns = at_most(n - column, most_columns);
    if (keep) {
      ready = {packed_b, columns, -column};
      pack_columns(problem, column, columns, ready);
    }
    for (int64_t row = 0; row < m; row += most_rows) {
      for (int64_t k_begin = 0; k_begin < k; k_begin += panel_k) {
        multiply_panel(problem,
                       {row, at_most(m - row, most_rows), column, columns, k_begin, at_most(k, k_begin + panel_k)},
                       ready, most, packed_a, packed_b, sums);
      }
    }
  }
}
