// Packs matrix operands into strips of fp32, converting bf16 and fp16. Memory is read by whole cache lines, because
// lines that are a power of two apart evict each other: 1.2 to 1.5 times as fast as by half lines, and for operands
// stored across k 1.3 to 2 times as fast as one strip at a time (Zen 4).

inline int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

#if MS_ISA > 0
// Lanes 4 i to 4 i + 3.
template <int i>
MS_INLINE __m128 quarter(Vec v) {
#if MS_ISA == 2
  return _mm512_extractf32x4_ps(v, i);
#else
  return _mm256_extractf128_ps(v, i);
#endif
}

template <int i>
MS_INLINE void store_quarters(const Vec (&steps)[4], float* target, int64_t stride) {
#pragma GCC unroll 4
  for (int p = 0; p < 4; ++p) _mm_storeu_ps(target + (4 * i + p) * stride, quarter<i>(steps[p]));
}

// target[p * stride + line] = r[line][p]: transposes four lines of kLanes steps.
MS_INLINE void store_transposed(const Vec (&r)[4], float* target, int64_t stride) {
#if MS_ISA == 2
  const Vec low01 = _mm512_unpacklo_ps(r[0], r[1]), high01 = _mm512_unpackhi_ps(r[0], r[1]);
  const Vec low23 = _mm512_unpacklo_ps(r[2], r[3]), high23 = _mm512_unpackhi_ps(r[2], r[3]);
  const Vec steps[4] = {_mm512_shuffle_ps(low01, low23, 0x44), _mm512_shuffle_ps(low01, low23, 0xee),
                        _mm512_shuffle_ps(high01, high23, 0x44), _mm512_shuffle_ps(high01, high23, 0xee)};
#else
  const Vec low01 = _mm256_unpacklo_ps(r[0], r[1]), high01 = _mm256_unpackhi_ps(r[0], r[1]);
  const Vec low23 = _mm256_unpacklo_ps(r[2], r[3]), high23 = _mm256_unpackhi_ps(r[2], r[3]);
  const Vec steps[4] = {_mm256_shuffle_ps(low01, low23, 0x44), _mm256_shuffle_ps(low01, low23, 0xee),
                        _mm256_shuffle_ps(high01, high23, 0x44), _mm256_shuffle_ps(high01, high23, 0xee)};
#endif
  store_quarters<0>(steps, target, stride);
  store_quarters<1>(steps, target, stride);
#if MS_ISA == 2
  store_quarters<2>(steps, target, stride);
  store_quarters<3>(steps, target, stride);
#endif
}

// Stores the first kCount lanes.
template <int64_t kCount>
MS_INLINE void store_first(float* target, Vec v) {
#if MS_ISA == 2
  _mm512_mask_storeu_ps(target, (1U << kCount) - 1, v);
#else
  static_assert(kCount == 4 || kCount == 6);
  const __m128 low = _mm256_castps256_ps128(v), high = _mm256_extractf128_ps(v, 1);
  _mm_storeu_ps(target, low);
  if (kCount == 6) _mm_storel_pi(reinterpret_cast<__m64*>(target + 4), high);
#endif
}

// Lines along k are read in groups of four: the number of lines read for a strip of kWidth, including lines after it.
template <int64_t kWidth>
constexpr int64_t kReadLines = (kWidth + 3) / 4 * 4;

// Packs kLanes steps of `lines` lines that are contiguous in memory; the other lines up to kReadLines are 0. For a
// whole strip the lines after it are read too. Writes the last four lines first: their excess is overwritten by the
// next step.
template <int64_t kWidth, bool kWhole, class T>
MS_INLINE void transpose_lines(const T* source, int64_t ld, int64_t lines, float* target) {
  for (int64_t line = kReadLines<kWidth> - 4; line >= 0; line -= 4) {
    Vec r[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const T* const at = source + (line + i) * ld;
      if (kWhole) __builtin_prefetch(reinterpret_cast<const char*>(at) + 128);
      r[i] = kWhole || line + i < lines ? load(at) : zero();
    }
    store_transposed(r, target + line, kWidth);
  }
}

// The first steps of four lines, from `line` on.
template <int64_t kWidth>
MS_INLINE void copy_transposed(const Vec (&r)[4], int64_t line, int64_t steps, float* target) {
  float transposed[4 * kLanes];
  store_transposed(r, transposed, 4);
  for (int64_t p = 0; p < steps; ++p) {
    for (int64_t i = 0; i < at_most(kWidth - line, 4); ++i) target[p * kWidth + line + i] = transposed[4 * p + i];
  }
}

// transpose_lines for fewer than kLanes steps.
template <int64_t kWidth, class T>
void transpose_some(const T* source, int64_t ld, int64_t lines, int64_t steps, float* target) {
  for (int64_t line = 0; line < kWidth; line += 4) {
    Vec r[4];
    for (int64_t i = 0; i < 4; ++i) {
      r[i] = line + i < lines ? load_partial(source + (line + i) * ld, steps) : zero();
    }
    copy_transposed<kWidth>(r, line, steps, target);
  }
}

// One step of a whole strip stored across k. Reads whole vectors.
template <int64_t kWidth, class T>
MS_INLINE void copy_step(const T* source, float* target) {
  constexpr int64_t kWhole = kWidth / kLanes * kLanes;
#pragma GCC unroll 4
  for (int64_t line = 0; line < kWhole; line += kLanes) store(target + line, load(source + line));
  if constexpr (kWhole < kWidth) store_first<kWidth - kWhole>(target + kWhole, load(source + kWhole));
}

// `strips` strips stored across k: four rows at a time, which the hardware prefetches.
template <int64_t kWidth, class T>
void copy_strips(const T* source, int64_t ld, int64_t strips, int64_t k, float* target) {
  constexpr int64_t kRows = 4;
  for (int64_t p = 0; p < k; p += kRows) {
    const int64_t rows = at_most(k - p, kRows);
    const T* from = source + p * ld;
    float* to = target + p * kWidth;
    for (int64_t strip = 0; strip < strips; ++strip, from += kWidth, to += kWidth * k) {
      if (rows == kRows) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < kRows; ++i) copy_step<kWidth>(from + i * ld, to + i * kWidth);
      } else {
        for (int64_t i = 0; i < rows; ++i) copy_step<kWidth>(from + i * ld, to + i * kWidth);
      }
    }
  }
}
#endif

// Floats that pack needs: the last step of the last strip may be written with some floats beyond it.
template <int64_t kWidth>
constexpr int64_t packed_floats(int64_t lines, int64_t k) {
  return (lines + kWidth - 1) / kWidth * kWidth * k + 8;
}

// Packs `lines` rows of op(A), or columns of op(B), over `k` elements of k into strips of kWidth lines:
// target[strip][p * kWidth + line], padded with lines of 0.
// along_k: a line is contiguous in memory (source[line * ld + p]); otherwise a step is (source[p * ld + line]).
template <int64_t kWidth, class T>
void pack(const T* source, int64_t ld, bool along_k, int64_t lines, int64_t k, float* target) {
  int64_t first = 0;
#if MS_ISA > 0
  if (along_k) {
    for (; first < lines; first += kWidth, target += kWidth * k) {
      const T* const strip = source + first * ld;
      const int64_t width = at_most(lines - first, kWidth), whole = k / kLanes * kLanes;
      if (lines - first >= kReadLines<kWidth>) {
        for (int64_t p = 0; p < whole; p += kLanes) {
          transpose_lines<kWidth, true>(strip + p, ld, kWidth, target + p * kWidth);
        }
      } else {
        for (int64_t p = 0; p < whole; p += kLanes) {
          transpose_lines<kWidth, false>(strip + p, ld, width, target + p * kWidth);
        }
      }
      if (whole < k) transpose_some<kWidth>(strip + whole, ld, width, k - whole, target + whole * kWidth);
    }
    return;
  }
  constexpr int64_t kReadAcross = (kWidth + kLanes - 1) / kLanes * kLanes;
  const int64_t strips = lines < kReadAcross ? 0 : (lines - kReadAcross) / kWidth + 1;
  copy_strips<kWidth>(source, ld, strips, k, target);
  first = strips * kWidth, target += first * k;
#endif
  for (; first < lines; first += kWidth, target += kWidth * k) {
    const int64_t width = at_most(lines - first, kWidth);
    for (int64_t p = 0; p < k; ++p) {
      float* const step = target + p * kWidth;
      for (int64_t line = 0; line < width; ++line) {
        step[line] = to_float(source[along_k ? (first + line) * ld + p : p * ld + first + line]);
      }
      for (int64_t line = width; line < kWidth; ++line) step[line] = 0;
    }
  }
}
