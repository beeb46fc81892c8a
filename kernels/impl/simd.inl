// The vector layer of kernel bodies: Vec, kLanes floats wide. Included by foreach_isa.h only, once per region.
//
// load and store convert, so a body written for T = float also serves bf16 and fp16. Partial versions access n < kLanes
// elements; a partial load fills the rest with 0.

#if MS_ISA == 0
using Vec = float;
constexpr int64_t kLanes = 1;

MS_INLINE Vec broadcast(float value) { return value; }
MS_INLINE Vec load(const float* p) { return *p; }
MS_INLINE Vec load(const bf16* p) { return static_cast<float>(*p); }
MS_INLINE Vec load(const fp16* p) { return static_cast<float>(*p); }
MS_INLINE void store(float* p, Vec v) { *p = v; }
MS_INLINE void store(bf16* p, Vec v) { *p = bf16(v); }
MS_INLINE void store(fp16* p, Vec v) { *p = fp16(v); }
MS_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
MS_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }  // b if either is NaN, like vmaxps
MS_INLINE Vec min(Vec a, Vec b) { return a < b ? a : b; }
MS_INLINE Vec sqrt(Vec v) { return std::sqrt(v); }
MS_INLINE Vec round(Vec v) { return std::nearbyint(v); }
MS_INLINE float reduce_add(Vec v) { return v; }
MS_INLINE float reduce_max(Vec v) { return v; }
MS_INLINE Vec select_less(Vec a, Vec b, Vec yes, Vec no) { return a < b ? yes : no; }
// 2^n for integral n in [-127, 127]; -127 gives 0.
MS_INLINE Vec exp2_integral(Vec n) { return std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23); }
#elif MS_ISA == 1
using Vec = __m256;
constexpr int64_t kLanes = 8;

MS_INLINE Vec broadcast(float value) { return _mm256_set1_ps(value); }
MS_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
MS_INLINE Vec load(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
MS_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
// The bits of eight numbers, the upper halves rounded to nearest even; the lower halves are undefined.
MS_INLINE __m256i bf16_bits(Vec v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}
MS_INLINE __m128i to_bf16(Vec v) {
  const __m256i halves = _mm256_srli_epi32(bf16_bits(v), 16);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08));
}
MS_INLINE __m128i to_fp16(Vec v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
MS_INLINE void store(bf16* p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(v)); }
MS_INLINE Vec load(const fp16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
MS_INLINE void store(fp16* p, Vec v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_fp16(v)); }
MS_INLINE void stream(float* p, Vec v) { _mm256_stream_ps(p, v); }
MS_INLINE void stream(bf16* p, Vec v) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), to_bf16(v)); }
MS_INLINE void stream(fp16* p, Vec v) { _mm_stream_si128(reinterpret_cast<__m128i*>(p), to_fp16(v)); }
MS_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
MS_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
MS_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
MS_INLINE Vec sqrt(Vec v) { return _mm256_sqrt_ps(v); }
MS_INLINE Vec round(Vec v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
MS_INLINE float reduce_add(Vec v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}
MS_INLINE float reduce_max(Vec v) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}
MS_INLINE Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
MS_INLINE Vec exp2_integral(Vec n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
#else
using Vec = __m512;
constexpr int64_t kLanes = 16;

MS_INLINE Vec broadcast(float value) { return _mm512_set1_ps(value); }
MS_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
MS_INLINE Vec load(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
MS_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
#ifndef MS_ROUNDS_TO_BF16
// The bits of sixteen numbers, the upper halves rounded to nearest even; the lower halves are undefined.
MS_INLINE __m512i bf16_bits(Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(_mm512_set1_epi32(0x7fff), odd));
  return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
}
MS_INLINE __m256i to_bf16(Vec v) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(v), 16)); }
#else
MS_INLINE __m256i to_bf16(Vec v) { return (__m256i)_mm512_cvtneps_pbh(v); }
#endif
MS_INLINE __m256i to_fp16(Vec v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
MS_INLINE void store(bf16* p, Vec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(v)); }
MS_INLINE Vec load(const fp16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
MS_INLINE void store(fp16* p, Vec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_fp16(v)); }
MS_INLINE void stream(float* p, Vec v) { _mm512_stream_ps(p, v); }
MS_INLINE void stream(bf16* p, Vec v) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_bf16(v)); }
MS_INLINE void stream(fp16* p, Vec v) { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), to_fp16(v)); }
MS_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
MS_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
MS_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
MS_INLINE Vec sqrt(Vec v) { return _mm512_sqrt_ps(v); }
MS_INLINE Vec round(Vec v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
MS_INLINE float reduce_add(Vec v) { return _mm512_reduce_add_ps(v); }
MS_INLINE float reduce_max(Vec v) { return _mm512_reduce_max_ps(v); }
MS_INLINE Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
#endif

MS_INLINE Vec zero() { return broadcast(0.0F); }

// Whether a row that begins at p is stored past the caches (kernels/stores.h): its vectors must be aligned.
template <class T>
MS_INLINE bool streams(Stores stores, const T* p) {
  return MS_ISA > 0 && stores == Stores::kNonTemporal && reinterpret_cast<uintptr_t>(p) % (kLanes * sizeof(T)) == 0;
}

template <bool kNonTemporal, class T>
MS_INLINE void put(T* p, Vec v) {
#if MS_ISA > 0
  if constexpr (kNonTemporal) {
    stream(p, v);
    return;
  }
#endif
  store(p, v);
}

// Call after the last put: other threads that see a later write then also see the rows.
MS_INLINE void finish(Stores stores) {
#if MS_ISA > 0
  if (stores == Stores::kNonTemporal) _mm_sfence();
#else
  (void)stores;
#endif
}

// Numbers in a vector's worth of bytes: one Vec for fp32, two for a 16-bit type. For bf16 they are the even and the odd
// elements, which one instruction each unpacks, and packing takes half the instructions; the other types are in order.
template <class T>
constexpr int64_t kLineVecs = sizeof(float) / sizeof(T);
template <class T>
constexpr int64_t kLineLanes = kLineVecs<T>* kLanes;
template <class T>
struct Line {
  Vec vecs[kLineVecs<T>];
};

MS_INLINE Line<float> load_line(const float* p) { return {{load(p)}}; }
MS_INLINE Line<fp16> load_line(const fp16* p) { return {{load(p), load(p + kLanes)}}; }
MS_INLINE Line<bf16> load_line(const bf16* p) {
#if MS_ISA == 0
  return {{load(p), load(p + 1)}};
#elif MS_ISA == 1
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)),
           _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int32_t>(0xffff0000U))))}};
#else
  const __m512i bits = _mm512_loadu_si512(p);
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
           _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000U))))}};
#endif
}

// non_temporal: the result of streams_lines().
MS_INLINE void put_line(float* p, const Line<float>& line, bool non_temporal) {
  non_temporal ? put<true>(p, line.vecs[0]) : store(p, line.vecs[0]);
}
MS_INLINE void put_line(fp16* p, const Line<fp16>& line, bool non_temporal) {
  non_temporal ? put<true>(p, line.vecs[0]) : store(p, line.vecs[0]);
  non_temporal ? put<true>(p + kLanes, line.vecs[1]) : store(p + kLanes, line.vecs[1]);
}
MS_INLINE void put_line(bf16* p, const Line<bf16>& line, bool non_temporal) {
#if MS_ISA == 0
  (void)non_temporal;
  store(p, line.vecs[0]);
  store(p + 1, line.vecs[1]);
#elif MS_ISA == 1
  const __m256i even = _mm256_srli_epi32(bf16_bits(line.vecs[0]), 16);
  const __m256i bits = _mm256_blend_epi16(even, bf16_bits(line.vecs[1]), 0xAA);
  __m256i* const target = reinterpret_cast<__m256i*>(p);
  non_temporal ? _mm256_stream_si256(target, bits) : _mm256_storeu_si256(target, bits);
#else
#ifndef MS_ROUNDS_TO_BF16
  const __m512i even = _mm512_srli_epi32(bf16_bits(line.vecs[0]), 16);
  const __m512i bits = _mm512_mask_blend_epi16(0xAAAAAAAAU, even, bf16_bits(line.vecs[1]));
#else
  const __m512i alternate = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                             21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i bits = _mm512_permutexvar_epi16(alternate, (__m512i)_mm512_cvtne2ps_pbh(line.vecs[1], line.vecs[0]));
#endif
  non_temporal ? _mm512_stream_si512(reinterpret_cast<__m512i*>(p), bits) : _mm512_storeu_si512(p, bits);
#endif
}

// kLineLanes floats in the element order of T's lines.
template <class T>
MS_INLINE Line<T> load_for_line(const float* p) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return {{load(p)}};
  } else if constexpr (std::is_same_v<T, bf16>) {
    const Vec first = load(p), second = load(p + kLanes);
#if MS_ISA == 0
    return {{first, second}};
#elif MS_ISA == 1
    const Vec low = _mm256_permute2f128_ps(first, second, 0x20), high = _mm256_permute2f128_ps(first, second, 0x31);
    return {{_mm256_shuffle_ps(low, high, 0x88), _mm256_shuffle_ps(low, high, 0xdd)}};
#else
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return {{_mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second)}};
#endif
  } else {
    return {{load(p), load(p + kLanes)}};
  }
}

// Adds the line's numbers to p, in order.
MS_INLINE void add_in_order(float* p, const Line<float>& line) { store(p, load(p) + line.vecs[0]); }
MS_INLINE void add_in_order(float* p, const Line<fp16>& line) {
  store(p, load(p) + line.vecs[0]);
  store(p + kLanes, load(p + kLanes) + line.vecs[1]);
}
MS_INLINE void add_in_order(float* p, const Line<bf16>& line) {
  const Vec even = line.vecs[0], odd = line.vecs[1];
#if MS_ISA == 0
  const Vec first = even, second = odd;
#elif MS_ISA == 1
  const Vec low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  const Vec first = _mm256_permute2f128_ps(low, high, 0x20), second = _mm256_permute2f128_ps(low, high, 0x31);
#else
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  const Vec first = _mm512_permutex2var_ps(even, low, odd), second = _mm512_permutex2var_ps(even, high, odd);
#endif
  store(p, load(p) + first);
  store(p + kLanes, load(p + kLanes) + second);
}

// Whether to store lines past the caches for rows of h elements, the first at p: all rows must be aligned.
template <class T>
MS_INLINE bool streams_lines(Stores stores, const T* p, int64_t h) {
  constexpr uintptr_t kBytes = sizeof(Vec);
  return MS_ISA > 0 && stores == Stores::kNonTemporal && reinterpret_cast<uintptr_t>(p) % kBytes == 0 &&
         static_cast<uintptr_t>(h) * sizeof(T) % kBytes == 0;
}

template <class T>
MS_INLINE Vec load_partial(const T* p, int64_t n) {
  T lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}

template <class T>
MS_INLINE void store_partial(T* p, Vec v, int64_t n) {
  T lanes[kLanes];
  store(lanes, v);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// For data that is read a row later: into L2, which has more outstanding misses than L1. LayerNorm's gradient 65 -> 72
// %.
template <class T>
MS_INLINE void prefetch(const T* p) {
#if MS_ISA > 0
  __builtin_prefetch(p, 0, 2);
#else
  (void)p;
#endif
}

// Prefetches into L1.
template <class T>
MS_INLINE void prefetch_near(const T* p) {
#if MS_ISA > 0
  __builtin_prefetch(p, 0, 3);
#else
  (void)p;
#endif
}

// The processor drops some prefetches while many lines are outstanding, so loops over memory prefetch twice: p, and 4
// KB later, when p has advanced, the same address as prefetched_before(p). Norm gradients 56 to 85 -> 87 to 98 % of the
// bandwidth, SwiGLU 77 to 88 -> 83 to 94 %, tanh-GELU 72 -> 82 % (Zen 4).
template <class T>
MS_INLINE const char* prefetched_before(const T* p) {
  return reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) - 4096);
}

template <class T>
MS_INLINE void prefetch_twice(const T* p) {
  prefetch(p);
  prefetch(prefetched_before(p));
}

// For loops with an exponential per vector, which fill the reorder buffer before the loads of the next lines are in it.
// Prefetching once, in share of the bandwidth: softmax gradient 68 -> 94 %, sums of exponentials 69 -> 76 %, tanh-GELU
// 79 -> 87 %, its gradient 77 -> 94 % (Cascade Lake, 2 KB ahead, into L1). 8 KB ahead: sums of exponentials 63 -> 87 %,
// softmax gradient 74 -> 96 % (Zen 4).
constexpr int64_t kAheadBytes = 8192;
template <class T>
MS_INLINE void prefetch_ahead(const T* p, int64_t bytes = kAheadBytes) {
  prefetch_twice(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)));
}

// e^x, relative error below 2e-7 where the result is normal; 0 if it is smaller, inf if larger, NaN for NaN. Cody-Waite
// reduction to |r| <= ln(2)/2, and the minimax polynomial 1 + c1 r + .. of degree 5 (relative error 9e-8).
MS_INLINE Vec exp(Vec x) {
  const Vec low = broadcast(-87.336544F);
#if MS_ISA == 2
  // scalef saturates for large x, and small x is masked below: half the instructions of the general form.
  const Vec clamped = min(broadcast(90.0F), x);  // this order of arguments keeps NaN
#else
  const Vec high = broadcast(88.722839F), clamped = min(high, max(low, x));
#endif
  const Vec n = round(clamped * broadcast(1.44269504F));
  Vec r = fma(n, broadcast(-0.693359375F), clamped);
  r = fma(n, broadcast(2.12194440e-4F), r);
  Vec p = broadcast(8.290262892842293e-3F);
  p = fma(p, r, broadcast(4.189816117286682e-2F));
  p = fma(p, r, broadcast(1.666763871908188e-1F));
  p = fma(p, r, broadcast(4.999914765357971e-1F));
  p = fma(p, r, broadcast(9.999997019767761e-1F));
  p = fma(p, r, broadcast(1.0F));
#if MS_ISA == 2
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), p, n);
#else
  const Vec half = round(n * broadcast(0.5F));  // in two halves, so that 2^128 is never formed
  const Vec result = p * exp2_integral(half) * exp2_integral(n - half);
  const Vec with_zero = select_less(x, low, zero(), result);
  return select_less(high, x, broadcast(std::numeric_limits<float>::infinity()), with_zero);
#endif
}

// e^x for x <= 0, 0 where the result is subnormal; relative error below 3e-7 + 1e-7 |x|, enough where terms are small
// compared with a softmax's 1. Computes 2^v, v = x / ln(2) + 1/2, from its integral and fractional parts in 8
// instructions instead of 12, which these loops are bound by.
MS_INLINE Vec exp_below_one(Vec x) {
#if MS_ISA == 2
  const Vec v = fma(x, broadcast(1.44269504F), broadcast(0.5F));
  const Vec h = _mm512_reduce_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // v - floor(v); 0 for -inf
  Vec p = broadcast(1.3276472454890609e-3F);
  p = fma(p, h, broadcast(6.356423255056143e-3F));
  p = fma(p, h, broadcast(3.947516903281212e-2F));
  p = fma(p, h, broadcast(1.6981424391269684e-1F));
  p = fma(p, h, broadcast(4.9013322591781616e-1F));
  p = fma(p, h, broadcast(7.071067094802856e-1F));
  return _mm512_scalef_ps(p, v);
#else
  return exp(x);
#endif
}

// Relative error below 3e-7. Odd polynomial up to 0.625 (Cephes tanhf), 1 - 2 / (e^2x + 1) above.
MS_INLINE Vec tanh(Vec x) {
  const Vec one = broadcast(1.0F), limit = broadcast(0.625F), square = x * x;
  Vec p = broadcast(-5.70498872745e-3F);
  p = fma(p, square, broadcast(2.06390887954e-2F));
  p = fma(p, square, broadcast(-5.37397155531e-2F));
  p = fma(p, square, broadcast(1.33314422036e-1F));
  p = fma(p, square, broadcast(-3.33332819422e-1F));
  const Vec small = fma(p * square, x, x);
  const Vec large = one - broadcast(2.0F) / (exp(x + x) + one);
  return select_less(max(x, zero() - x), limit, small, large);
}

#if MS_ISA == 2
// 2^u, for a result of type T: relative error below 1.3e-7 + 6e-8 |u|, for bf16 below 7.6e-5. 0 on underflow, inf on
// overflow, NaN for NaN. Both instructions round down by definition.
template <class T>
MS_INLINE Vec power2(Vec u) {
  const Vec f = _mm512_reduce_ps(u, 0x09);
  Vec p;
  if constexpr (std::is_same_v<T, bf16>) {
    p = fma(broadcast(7.8024492e-2F), f, broadcast(2.2606757e-1F));
    p = fma(p, f, broadcast(6.9583321e-1F));
    p = fma(p, f, broadcast(9.9992526e-1F));
  } else {
    p = fma(broadcast(1.8671417e-3F), f, broadcast(9.0170056e-3F));
    p = fma(p, f, broadcast(5.5799931e-2F));
    p = fma(p, f, broadcast(2.4016444e-1F));
    p = fma(p, f, broadcast(6.931513e-1F));
    p = fma(p, f, broadcast(1.0F));
  }
  return _mm512_scalef_ps(p, u);
}
#endif

// 1 / (1 + 2^u) for a result of type T: relative error below 4e-7 + 1e-7 |u|, for bf16 on AVX-512 below 1.4e-4, 1/28 of
// its roundoff.
template <class T>
MS_INLINE Vec logistic2(Vec u) {
  const Vec one = broadcast(1.0F);
#if MS_ISA == 2
  const Vec sum = power2<T>(u) + one;
  if constexpr (std::is_same_v<T, bf16>) return _mm512_rcp14_ps(sum);
  return one / sum;
#else
  return one / (one + exp(broadcast(0.69314718F) * u));
#endif
}

// s of logistic2, and 1 - s with an absolute error of 6e-8; for bf16 on AVX-512 a relative error below 2.1e-4.
struct Logistic {
  Vec value, rest;
};

template <class T>
MS_INLINE Logistic logistic2_and_rest(Vec u) {
  const Vec one = broadcast(1.0F);
#if MS_ISA == 2
  if constexpr (std::is_same_v<T, bf16>) {
    const Vec power = min(broadcast(0x1p127F), power2<T>(u));  // finite: times its reciprocal it is no NaN
    const Vec s = _mm512_rcp14_ps(power + one);
    return {s, power * s};
  }
#endif
  const Vec s = logistic2<T>(u);
  return {s, one - s};
}
