// pack.inl and micro_tile.inl for AVX512_BF16's dot products: a word of a packed strip holds two elements along k, the
// earlier one in the low half; an odd last one is paired with 0.

struct DotProduct {
  static MS_INLINE Vec to(Vec sum, Vec a, Vec b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
};

MS_INLINE const float* words_of(const bf16* k_count) { return reinterpret_cast<const float*>(k_count); }

// transpose_some for up to 32 elements of k.
template <int64_t kWidth>
void transpose_some_words(const bf16* source, int64_t ld, int64_t lines, int64_t k_count, float* target) {
  const auto there = static_cast<__mmask32>((uint64_t{1} << k_count) - 1);
  for (int64_t line = 0; line < kWidth; line += 4) {
    Vec r[4];
    for (int64_t i = 0; i < 4; ++i) {
      r[i] = line + i < lines ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(there, source + (line + i) * ld)) : zero();
    }
    copy_transposed<kWidth>(r, line, (k_count + 1) / 2, target);
  }
}

// Packs 32 elements of k of kWidth lines that are contiguous in memory (source[line * ld + p]).
template <int64_t kWidth>
MS_INLINE void transpose_words(const bf16* source, int64_t ld, float* target) {
  for (int64_t line = 0; line < kWidth; line += 4) {
    Vec r[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const bf16* const at = source + (line + i) * ld;
      __builtin_prefetch(at + 64);
      r[i] = load(words_of(at));
    }
    store_transposed(r, target + line, kWidth);
  }
}

constexpr int64_t kAhead = 24;  // elements of k

// Like pack: strips of kWidth lines over `k` elements of k, (k + 1) / 2 words each.
template <int64_t kWidth>
void pack_pairs(const bf16* source, int64_t ld, bool along_k, int64_t lines, int64_t k, float* target) {
  constexpr int64_t kRead = (kWidth + 15) / 16 * 16;
  for (int64_t first = 0; first < lines; first += kWidth, target += kWidth * ((k + 1) / 2)) {
    const int64_t width = at_most(lines - first, kWidth);
    if (along_k) {
      const bf16* const strip = source + first * ld;
      int64_t k_begin = 0;
      if (width == kWidth) {
        for (; k_begin + 32 <= k; k_begin += 32)
          transpose_words<kWidth>(strip + k_begin, ld, target + k_begin / 2 * kWidth);
      }
      for (; k_begin < k; k_begin += 32) {
        transpose_some_words<kWidth>(strip + k_begin, ld, width, at_most(k - k_begin, 32),
                                     target + k_begin / 2 * kWidth);
      }
      continue;
    }
    const bf16* row = source + first;
    for (int64_t k_begin = 0; k_begin < k; k_begin += 2, row += 2 * ld) {
      const bool paired = k_begin + 1 < k;
      const bf16* const next = paired ? row + ld : row;
      float* const step = target + k_begin / 2 * kWidth;
      // Rows are too far apart for the hardware prefetcher.
      __builtin_prefetch(row + kAhead * ld);
      __builtin_prefetch(row + (kAhead + 1) * ld);
#pragma GCC unroll 2
      for (int64_t line = 0; line < kRead; line += 16) {
        const int64_t left = lines - first - line;
        const auto there = static_cast<__mmask16>(left >= 16 ? 0xffff : left <= 0 ? 0 : (1U << left) - 1);
        const __m256i below = _mm256_maskz_loadu_epi16(there, row + line);
        const __m256i above = _mm256_maskz_loadu_epi16(paired ? there : __mmask16{0}, next + line);
        const __m512i pairs =
            _mm512_or_si512(_mm512_cvtepu16_epi32(below), _mm512_slli_epi32(_mm512_cvtepu16_epi32(above), 16));
        _mm512_storeu_si512(step + line, pairs);  // in ascending order: beyond the width is the next step
      }
    }
  }
}
