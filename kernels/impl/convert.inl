// Body of convert.h.

#if MS_ISA == 0
MS_INLINE Vec load(const fp16* p) { return half_to_float(p->bits); }
MS_INLINE void store(fp16* p, Vec v) { p->bits = float_to_half(v); }
#elif MS_ISA == 1
MS_INLINE Vec load(const fp16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
MS_INLINE void store(fp16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else
MS_INLINE Vec load(const fp16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
MS_INLINE void store(fp16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#endif

template <class From, class To>
void convert(const From* source, To* target, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(target + i, load(source + i));
  if (i == n) return;
  From from[kLanes] = {};
  To to[kLanes];
  for (int64_t lane = 0; lane < n - i; ++lane) from[lane] = source[i + lane];
  store(to, load(from));
  for (int64_t lane = 0; lane < n - i; ++lane) target[i + lane] = to[lane];
}
