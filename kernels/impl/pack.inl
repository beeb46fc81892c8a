// Packing of matrix operands into strips of fp32, with 8 x 8 transposes; bf16 and fp16 are converted on the way.

#if MS_ISA > 0
MS_INLINE __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
MS_INLINE __m256 load8(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
MS_INLINE __m256 load8(const fp16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

// target[p * stride + line] = r[line][p], 8 x 8
MS_INLINE void store_transposed(__m256 (&r)[8], float* target, int64_t stride) {
  __m256 t[8];
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
  // In rising order: with a stride below 8 each is completed by the next.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) _mm256_storeu_ps(target + i * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) _mm256_storeu_ps(target + (i + 4) * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
}

// target[p * stride + line] = source[line * ld + p], 8 x 8
template <class T>
MS_INLINE void transpose8(const T* source, int64_t ld, float* target, int64_t stride) {
  __m256 r[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = load8(source + i * ld);
  store_transposed(r, target, stride);
}
#endif

// Lines are read by eights: so many of a strip's kWidth lines and those behind them.
template <int64_t kWidth>
constexpr int64_t kReadLines = (kWidth + 7) / 8 * 8;

constexpr int64_t kAhead = 24;  // steps

// What pack needs: the last step of the last strip may be written with up to 7 floats beyond it.
template <int64_t kWidth>
constexpr int64_t packed_floats(int64_t lines, int64_t depth) {
  return (lines + kWidth - 1) / kWidth * kWidth * depth + 8;
}

// Packs `lines` rows of op(A), or columns of op(B), over `depth` steps of k into strips of kWidth lines:
// target[strip][p * kWidth + line]. Lines beyond the last are 0.
// along_k: a line is contiguous in memory (source[line * ld + p]); else a step is (source[p * ld + line]).
template <int64_t kWidth, class T>
void pack(const T* source, int64_t ld, bool along_k, int64_t lines, int64_t depth, float* target) {
  for (int64_t first = 0; first < lines; first += kWidth, target += kWidth * depth) {
    const int64_t width = lines - first < kWidth ? lines - first : kWidth;
    int64_t packed = 0;  // steps of k already packed by vector code
    if (along_k) {
      const T* strip = source + first * ld;
#if MS_ISA > 0
      if (lines - first >= kReadLines<kWidth>) {
        for (; packed + 8 <= depth; packed += 8) {
          // The last eight lines first: what they write beyond the strip's width belongs to the next steps.
          for (int64_t line = kReadLines<kWidth> - 8; line >= 0; line -= 8) {
            transpose8(strip + line * ld + packed, ld, target + packed * kWidth + line, kWidth);
          }
        }
      }
#endif
      for (int64_t p = packed; p < depth; ++p) {
        float* step = target + p * kWidth;
        for (int64_t line = 0; line < width; ++line) step[line] = to_float(strip[line * ld + p]);
        for (int64_t line = width; line < kWidth; ++line) step[line] = 0;
      }
    } else {
      const T* strip = source + first;
#if MS_ISA > 0
      if (lines - first >= kReadLines<kWidth>) {
        for (; packed < depth; ++packed) {
          // Steps lie further apart than the processor prefetches.
          const auto* ahead = reinterpret_cast<const char*>(strip + (packed + kAhead) * ld);
          for (size_t byte = 0; byte < kWidth * sizeof(T); byte += 64) __builtin_prefetch(ahead + byte);
          for (int64_t line = 0; line < kReadLines<kWidth>; line += 8) {
            _mm256_storeu_ps(target + packed * kWidth + line, load8(strip + packed * ld + line));
          }
        }
      }
#endif
      for (int64_t p = packed; p < depth; ++p) {
        float* step = target + p * kWidth;
        for (int64_t line = 0; line < width; ++line) step[line] = to_float(strip[p * ld + line]);
        for (int64_t line = width; line < kWidth; ++line) step[line] = 0;
      }
    }
  }
}
