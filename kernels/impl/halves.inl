// Vector operations of fp32_halves.h: converts numbers to and from halves, and sets the sign of the mark.

#if MS_ISA == 0
MS_INLINE Vec without_sign(Vec v) { return std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0x7fffffffU); }

MS_INLINE Vec join_halves(const bf16* high, const uint16_t* low, Vec mark) {
  const uint32_t bits = static_cast<uint32_t>(high->bits) << 16 | *low;
  return std::bit_cast<float>(bits - 0x8000U + (std::bit_cast<uint32_t>(mark) >> 31));
}

// Returns the mark: the same number, its sign set if v is a tie. The low bits of a NaN are dropped, because adding to
// them would carry.
MS_INLINE Vec split_halves(Vec v, Vec mark, bf16* high, uint16_t* low) {
  uint32_t bits = std::bit_cast<uint32_t>(v);
  if (v != v) bits = (bits | 0x400000U) & 0xffff0000U;
  const uint32_t tie = (bits & 0x1ffffU) == 0x8000U ? 1U : 0U;
  bits += 0x8000U - tie;
  high->bits = static_cast<uint16_t>(bits >> 16);
  *low = static_cast<uint16_t>(bits);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(without_sign(mark)) | tie << 31);
}
#elif MS_ISA == 1
MS_INLINE Vec without_sign(Vec v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v); }

MS_INLINE Vec join_halves(const bf16* high, const uint16_t* low, Vec mark) {
  const __m256i upper = _mm256_castps_si256(load(high));
  const __m256i lower = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  const __m256i marked = _mm256_srli_epi32(_mm256_castps_si256(mark), 31);
  const __m256i bits = _mm256_sub_epi32(_mm256_or_si256(upper, lower), _mm256_set1_epi32(0x8000));
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, marked));
}

MS_INLINE Vec split_halves(Vec v, Vec mark, bf16* high, uint16_t* low) {
  __m256i bits = _mm256_castps_si256(v);
  const __m256i quiet =
      _mm256_and_si256(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), _mm256_set1_epi32(-0x10000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  bits = _mm256_blendv_epi8(bits, quiet, is_nan);
  const __m256i tie =  // -1 or 0
      _mm256_cmpeq_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x1ffff)), _mm256_set1_epi32(0x8000));
  bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), tie);
  const __m256i lower = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lower, _mm256_srli_epi32(bits, 16)), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(packed));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(packed, 1));
  return _mm256_or_ps(without_sign(mark), _mm256_castsi256_ps(_mm256_slli_epi32(tie, 31)));
}
#else
MS_INLINE Vec without_sign(Vec v) { return _mm512_abs_ps(v); }

MS_INLINE Vec join_halves(const bf16* high, const uint16_t* low, Vec mark) {
  const __m512i upper = _mm512_castps_si512(load(high));
  const __m512i lower = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  const __m512i marked = _mm512_srli_epi32(_mm512_castps_si512(mark), 31);
  const __m512i bits = _mm512_sub_epi32(_mm512_or_si512(upper, lower), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, marked));
}

MS_INLINE Vec split_halves(Vec v, Vec mark, bf16* high, uint16_t* low) {
  __m512i bits = _mm512_castps_si512(v);
  const __m512i quiet =
      _mm512_and_si512(_mm512_or_si512(bits, _mm512_set1_epi32(0x400000)), _mm512_set1_epi32(-0x10000));
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), quiet);
  const __mmask16 tie =
      _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, _mm512_set1_epi32(0x1ffff)), _mm512_set1_epi32(0x8000));
  bits = _mm512_add_epi32(bits, _mm512_mask_blend_epi32(tie, _mm512_set1_epi32(0x8000), _mm512_set1_epi32(0x7fff)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), _mm512_cvtepi32_epi16(bits));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  const __m512i number = _mm512_castps_si512(without_sign(mark));
  return _mm512_castsi512_ps(_mm512_mask_or_epi32(number, tie, number, _mm512_set1_epi32(INT32_MIN)));
}
#endif

// n < kLanes numbers handled as a whole vector, because the memory after them must not be touched.
struct HalvesLanes {
  bf16 high[kLanes] = {};
  uint16_t low[kLanes] = {};

  MS_INLINE void get(const Fp32Halves& halves, int64_t n) {
    for (int64_t i = 0; i < n; ++i) high[i] = halves.high[i], low[i] = halves.low[i];
  }
  MS_INLINE void put(const Fp32Halves& halves, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) halves.high[i] = high[i], halves.low[i] = low[i];
  }
};
