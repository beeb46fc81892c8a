// The "bf16_dot" implementation of gemm.h: pairs of bf16 along k.

#include "kernels/gemm/impl/gemm_blocks.inl"
#include "kernels/gemm/impl/pack_pairs.inl"

struct Pairs {
  static constexpr PackedFormat kFormat = PackedFormat::kBf16Pairs;
  static constexpr int64_t kElementsPerWord = 2;
  static constexpr bool kPacksWhileMultiplying = false;
  using Add = DotProduct;
  template <int64_t kWidth>
  static MS_INLINE void pack_strips(const bf16* source, int64_t ld, bool along_k, int64_t lines, int64_t k,
                                    float* target) {
    pack_pairs<kWidth>(source, ld, along_k, lines, k, target);
  }
};

inline void gemm_bf16_dot(const GemmProblem& problem, GemmScratch& scratch) {
  gemm_blocks<Pairs, bf16, bf16>(problem, scratch);
}

inline void pack_for_bf16_dot(const GemmProblem& problem, int64_t begin, int64_t end, float* words) {
  pack_whole_strips<Pairs, bf16>(problem, begin, end, words);
}
