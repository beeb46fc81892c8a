// The "packed" implementation of gemm.h, and the type dispatch of "skinny": fp32 words; 16-bit types are converted
// while packing.

#include "kernels/gemm/impl/gemm_blocks.inl"

struct Floats {
  static constexpr PackedFormat kFormat = PackedFormat::kFp32;
  static constexpr int64_t kElementsPerWord = 1;
  static constexpr bool kPacksWhileMultiplying = true;
  using Add = MultiplyAdd;
  template <int64_t kWidth, class T>
  static MS_INLINE void pack_strips(const T* source, int64_t ld, bool along_k, int64_t lines, int64_t k,
                                    float* target) {
    pack<kWidth>(source, ld, along_k, lines, k, target);
  }
};

// Packs strips [begin, end) of B.
inline void pack_for_fp32(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  switch (problem.b_type) {
    case GemmType::kFp32:
      return pack_whole_strips<Floats, float>(problem, begin, end, words);
    case GemmType::kBf16:
      return pack_whole_strips<Floats, bf16>(problem, begin, end, words);
    case GemmType::kFp16:
      return pack_whole_strips<Floats, fp16>(problem, begin, end, words);
  }
}

struct Packed {
  template <class A, class B>
  static void run(const GemmProblem& problem, GemmScratch& scratch) {
    gemm_blocks<Floats, A, B>(problem, scratch);
  }
};

#include "kernels/gemm/impl/gemm_skinny.inl"

// Half: the problem's 16-bit type. Each operand is Half or fp32.
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

inline void gemm_packed(const GemmProblem& problem, GemmScratch& scratch) { gemm_with_types<Packed>(problem, scratch); }
inline void gemm_skinny(const GemmProblem& problem, GemmScratch& scratch) { gemm_with_types<Skinny>(problem, scratch); }

// sums: fp32, or C's type.
template <class S>
void finish_rows_of(const GemmProblem& problem, int64_t row, int64_t rows, const S* sums, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i) {
    if constexpr (sizeof(S) == sizeof(float)) {
      finish_row(problem, row + i, 0, sums + i * ld, problem.n);
    } else {
      finish_typed<S, S>(problem, row + i, 0, sums + i * ld, problem.n);
    }
  }
}

inline void finish_rows(const GemmProblem& problem, int64_t row, int64_t rows, const void* sums, GemmType type,
                        int64_t ld) {
  switch (type) {
    case GemmType::kFp32:
      return finish_rows_of(problem, row, rows, static_cast<const float*>(sums), ld);
    case GemmType::kBf16:
      return finish_rows_of(problem, row, rows, static_cast<const bf16*>(sums), ld);
    case GemmType::kFp16:
      return finish_rows_of(problem, row, rows, static_cast<const fp16*>(sums), ld);
  }
}
