// The "tiles" implementation of gemm.h, and the types of "thin": Goto & van de Geijn 2008 (as in BLIS), with 16-bit
// types converted while packing.

#include "kernels/impl/micro_tile.inl"
#include "kernels/impl/pack.inl"

inline int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

// Panels: a strip of A (kTileRows x kDepth) stays in L1 while the strips of a block of B (kDepth x kBlockColumns, in
// L2) pass by; the panel of A (kPanelRows x kDepth) lies in L3. kDepth also fixes the order of summation: never make it
// depend on the problem. 384 against 256 and 192, AVX2 on Zen 3, layers of 768: 3 to 6 % faster (fewer passes over C).
constexpr int64_t kDepth = 384;
constexpr int64_t kBlockColumns = 384 / kTileColumns * kTileColumns;
constexpr int64_t kPanelRows = 1536 / kTileRows * kTileRows;
constexpr int64_t kPanelColumns = 2048 / kBlockColumns * kBlockColumns;  // of a 16-bit C: its sums are kept in fp32

// Asks for a tile of C before its sums are there: the one that is computed, which saves 2 % of the time (Zen 4, layers
// of 768 and 4096). Sums of few terms are over before C arrives: then it is asked for two tiles earlier, by which the
// weight gradients of 64 experts of 32 tokens take 67 to 72 % of the ceiling, not 60 to 66; and past the end of a row
// of tiles, of which a narrow block has four, too: 1.24 to 1.29 times oneDNN's speed (512 x 512, one thread).
constexpr int64_t kShortDepth = 128;
inline void ask_for_c(const float* c, int64_t ldc) {
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t column = 0; column < kTileColumns; column += 16) __builtin_prefetch(c + i * ldc + column, 1, 2);
  }
}

// Where the tile two behind the one at column j of a row of tiles lies, from that row's beginning.
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

// One packed strip of A times one of B. rows <= kTileRows, columns <= kTileColumns: edges go through a buffer, so that
// every element sees the same arithmetic. asked: the tile of C to ask for.
inline void packed_tile(int64_t depth, const float* a, const float* b, int64_t rows, int64_t columns, bool accumulate,
                        float* c, int64_t ldc, const float* asked) {
  if (rows == kTileRows && columns == kTileColumns) {
    ask_for_c(asked, ldc);
    micro_tile_rows<kTileRows>(depth, a, 1, kTileRows, b, kTileColumns, accumulate, c, ldc);
    return;
  }
  alignas(64) float edge[kTileRows * kTileColumns];
  micro_tile_rows<kTileRows>(depth, a, 1, kTileRows, b, kTileColumns, false, edge, kTileColumns);
  store_edge(edge, rows, columns, accumulate, c, ldc);
}

// packed_a, packed_b: room for a panel and a block.
template <class A, class B>
void gemm_panel(const GemmProblem& problem, const A* a, const B* b, int64_t columns, bool accumulate, float* c,
                int64_t ldc, float* packed_a, float* packed_b) {
  const int64_t m = problem.m, k = problem.k;
  for (int64_t row_begin = 0; row_begin < m; row_begin += kPanelRows) {
    const int64_t rows = m - row_begin < kPanelRows ? m - row_begin : kPanelRows;
    for (int64_t depth_begin = 0; depth_begin < k; depth_begin += kDepth) {
      const int64_t depth = k - depth_begin < kDepth ? k - depth_begin : kDepth;
      const bool add = accumulate || depth_begin > 0;
      const A* a_panel =
          problem.transpose_a ? a + depth_begin * problem.lda + row_begin : a + row_begin * problem.lda + depth_begin;
      pack<kTileRows>(a_panel, problem.lda, !problem.transpose_a, rows, depth, packed_a);
      for (int64_t block = 0; block < columns; block += kBlockColumns) {
        const int64_t width = columns - block < kBlockColumns ? columns - block : kBlockColumns;
        const B* b_block =
            problem.transpose_b ? b + block * problem.ldb + depth_begin : b + depth_begin * problem.ldb + block;
        pack<kTileColumns>(b_block, problem.ldb, problem.transpose_b, width, depth, packed_b);
        for (int64_t i = 0; i < rows; i += kTileRows) {
          float* const tiles = c + (row_begin + i) * ldc + block;
          for (int64_t j = 0; j < width; j += kTileColumns) {
            packed_tile(depth, packed_a + i * depth, packed_b + j * depth, at_most(rows - i, kTileRows),
                        at_most(width - j, kTileColumns), add, tiles + j, ldc,
                        tiles + (depth <= kShortDepth ? two_tiles_on(j, width, ldc) : j));
          }
        }
      }
    }
  }
}

template <class T>
void store_sums(const float* sums, int64_t rows, int64_t columns, T* target, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i, sums += columns, target += ld) {
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) store(target + j, load(sums + j));
    for (; j < columns; ++j) target[j] = T(sums[j]);
  }
}

// Sums of an fp32 buffer into `columns` columns of a 16-bit C.
inline void store_narrow(const GemmProblem& problem, const float* sums, int64_t column_begin, int64_t columns) {
  if (problem.c_type == GemmType::kBf16) {
    store_sums(sums, problem.m, columns, static_cast<bf16*>(problem.c) + column_begin, problem.ldc);
  } else {
    store_sums(sums, problem.m, columns, static_cast<fp16*>(problem.c) + column_begin, problem.ldc);
  }
}

struct Tiles {
  template <class A, class B>
  static void run(const GemmProblem& problem, GemmScratch& scratch) {
    const int64_t m = problem.m, n = problem.n;
    const auto* a = static_cast<const A*>(problem.a);
    const auto* b = static_cast<const B*>(problem.b);
    const int64_t depth = at_most(problem.k, kDepth);
    float* packed_a = scratch.packed_a(packed_floats<kTileRows>(at_most(m, kPanelRows), depth));
    float* packed_b = scratch.packed_b(packed_floats<kTileColumns>(at_most(n, kBlockColumns), depth));
    if (problem.c_type == GemmType::kFp32) {
      gemm_panel(problem, a, b, n, problem.accumulate, static_cast<float*>(problem.c), problem.ldc, packed_a, packed_b);
      return;
    }
    for (int64_t column_begin = 0; column_begin < n; column_begin += kPanelColumns) {
      const int64_t columns = at_most(n - column_begin, kPanelColumns);
      const B* b_panel = problem.transpose_b ? b + column_begin * problem.ldb : b + column_begin;
      float* sums = scratch.sums(m * columns);
      gemm_panel(problem, a, b_panel, columns, false, sums, columns, packed_a, packed_b);
      store_narrow(problem, sums, column_begin, columns);
    }
  }
};

#include "kernels/impl/gemm_thin.inl"

// Half: the 16-bit type of the problem. Operands are of it or fp32.
template <class How, class Half>
void gemm_with_half(const GemmProblem& problem, GemmScratch& scratch) {
  if (problem.b_type == GemmType::kFp32) return How::template run<Half, float>(problem, scratch);
  if (problem.a_type == GemmType::kFp32) return How::template run<float, Half>(problem, scratch);
  return How::template run<Half, Half>(problem, scratch);
}

template <class How>
void gemm_with_types(const GemmProblem& problem, GemmScratch& scratch) {
  if (problem.a_type == GemmType::kFp32 && problem.b_type == GemmType::kFp32) {
    return How::template run<float, float>(problem, scratch);
  }
  const bool is_bf16 = problem.a_type == GemmType::kBf16 || problem.b_type == GemmType::kBf16;
  return is_bf16 ? gemm_with_half<How, bf16>(problem, scratch) : gemm_with_half<How, fp16>(problem, scratch);
}

inline void gemm_tiles(const GemmProblem& problem, GemmScratch& scratch) { gemm_with_types<Tiles>(problem, scratch); }
inline void gemm_thin(const GemmProblem& problem, GemmScratch& scratch) { gemm_with_types<Thin>(problem, scratch); }
