// Body of kernels/byte_planes.h. Handles 16 elements at a time: sorts the bytes within each vector, then transposes the
// 32-bit words of the vectors.

#if MS_ISA > 0
using Bytes = __m128i;
MS_INLINE Bytes load_bytes(const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const Bytes*>(p)); }
MS_INLINE void store_bytes(std::byte* p, Bytes v) { _mm_storeu_si128(reinterpret_cast<Bytes*>(p), v); }

// Returns the number of elements done.
MS_INLINE int64_t split4(const std::byte* in, int64_t n, std::byte* const* planes) {
  const Bytes sort = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Bytes a = _mm_shuffle_epi8(load_bytes(in + 4 * i), sort),
                b = _mm_shuffle_epi8(load_bytes(in + 4 * i + 16), sort);
    const Bytes c = _mm_shuffle_epi8(load_bytes(in + 4 * i + 32), sort),
                d = _mm_shuffle_epi8(load_bytes(in + 4 * i + 48), sort);
    const Bytes ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    const Bytes cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    store_bytes(planes[0] + i, _mm_unpacklo_epi64(ab_low, cd_low));
    store_bytes(planes[1] + i, _mm_unpackhi_epi64(ab_low, cd_low));
    store_bytes(planes[2] + i, _mm_unpacklo_epi64(ab_high, cd_high));
    store_bytes(planes[3] + i, _mm_unpackhi_epi64(ab_high, cd_high));
  }
  return i;
}

MS_INLINE int64_t split2(const std::byte* in, int64_t n, std::byte* const* planes) {
  const Bytes sort = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Bytes a = _mm_shuffle_epi8(load_bytes(in + 2 * i), sort),
                b = _mm_shuffle_epi8(load_bytes(in + 2 * i + 16), sort);
    store_bytes(planes[0] + i, _mm_unpacklo_epi64(a, b));
    store_bytes(planes[1] + i, _mm_unpackhi_epi64(a, b));
  }
  return i;
}

MS_INLINE int64_t join4(const std::byte* const* planes, int64_t n, std::byte* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Bytes p0 = load_bytes(planes[0] + i), p1 = load_bytes(planes[1] + i);
    const Bytes p2 = load_bytes(planes[2] + i), p3 = load_bytes(planes[3] + i);
    const Bytes low_a = _mm_unpacklo_epi8(p0, p1), low_b = _mm_unpackhi_epi8(p0, p1);
    const Bytes high_a = _mm_unpacklo_epi8(p2, p3), high_b = _mm_unpackhi_epi8(p2, p3);
    store_bytes(out + 4 * i, _mm_unpacklo_epi16(low_a, high_a));
    store_bytes(out + 4 * i + 16, _mm_unpackhi_epi16(low_a, high_a));
    store_bytes(out + 4 * i + 32, _mm_unpacklo_epi16(low_b, high_b));
    store_bytes(out + 4 * i + 48, _mm_unpackhi_epi16(low_b, high_b));
  }
  return i;
}

MS_INLINE int64_t join2(const std::byte* const* planes, int64_t n, std::byte* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Bytes p0 = load_bytes(planes[0] + i), p1 = load_bytes(planes[1] + i);
    store_bytes(out + 2 * i, _mm_unpacklo_epi8(p0, p1));
    store_bytes(out + 2 * i + 16, _mm_unpackhi_epi8(p0, p1));
  }
  return i;
}
#else
MS_INLINE int64_t split4(const std::byte*, int64_t, std::byte* const*) { return 0; }
MS_INLINE int64_t split2(const std::byte*, int64_t, std::byte* const*) { return 0; }
MS_INLINE int64_t join4(const std::byte* const*, int64_t, std::byte*) { return 0; }
MS_INLINE int64_t join2(const std::byte* const*, int64_t, std::byte*) { return 0; }
#endif

inline void split_planes(const std::byte* in, int64_t n, int item, std::byte* const* planes) {
  const int64_t done = item == 4 ? split4(in, n, planes) : item == 2 ? split2(in, n, planes) : 0;
  for (int b = 0; b < item; ++b) {
    for (int64_t i = done; i < n; ++i) planes[b][i] = in[i * item + b];
  }
}

inline void join_planes(const std::byte* const* planes, int64_t n, int item, std::byte* out) {
  const int64_t done = item == 4 ? join4(planes, n, out) : item == 2 ? join2(planes, n, out) : 0;
  for (int b = 0; b < item; ++b) {
    for (int64_t i = done; i < n; ++i) out[i * item + b] = planes[b][i];
  }
}
