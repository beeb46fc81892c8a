// Body of int8_gemm.h, for instructions that multiply kDepth neighbours along k and add them into one 32-bit lane.
// Included by int8_gemm.cpp only, within the namespace and target region of each.
//
// Columns are packed kColumns at a time, [k / kDepth][column][kDepth], padded with zeros in k and in columns.

#if MS_VNNI
using Int = __m512i;
using Packed = int8_t;
constexpr int64_t kLanes = 16, kDepth = 4;
constexpr int kTileRows = 6;  // registers, of 32: 24 for sums, 4 for B, 1 for A

MS_INLINE Int load(const void* p) { return _mm512_loadu_si512(p); }
MS_INLINE void store(int32_t* p, Int v) { _mm512_storeu_si512(p, v); }
MS_INLINE Int dot(Int sum, Int a, Int b) { return _mm512_dpbusd_epi32(sum, a, b); }
// The instruction needs one unsigned operand: a + 128, which adds 128 times the column's sum. Sums start with minus
// that amount, and wrap around to the exact result.
MS_INLINE Int spread(const int8_t* a, int64_t count) {
  uint32_t bytes = 0;
  std::memcpy(&bytes, a, static_cast<size_t>(count));
  return _mm512_set1_epi32(static_cast<int32_t>(bytes ^ 0x80808080U));
}
constexpr int32_t kOffset = 128;

// kLanes columns of kDepth rows, packed.
MS_INLINE void pack_lanes(const int8_t* b, int64_t ldb, Packed* packed) {
  __m128i row[4];
#pragma GCC unroll 4
  for (int p = 0; p < 4; ++p) row[p] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + p * ldb));
  const __m128i low01 = _mm_unpacklo_epi8(row[0], row[1]), high01 = _mm_unpackhi_epi8(row[0], row[1]);
  const __m128i low23 = _mm_unpacklo_epi8(row[2], row[3]), high23 = _mm_unpackhi_epi8(row[2], row[3]);
  auto* target = reinterpret_cast<__m128i*>(packed);
  _mm_storeu_si128(target, _mm_unpacklo_epi16(low01, low23));
  _mm_storeu_si128(target + 1, _mm_unpackhi_epi16(low01, low23));
  _mm_storeu_si128(target + 2, _mm_unpacklo_epi16(high01, high23));
  _mm_storeu_si128(target + 3, _mm_unpackhi_epi16(high01, high23));
}
MS_INLINE Int ones() { return _mm512_set1_epi8(1); }
#else
using Int = __m256i;
using Packed = int16_t;
constexpr int64_t kLanes = 8, kDepth = 2;
constexpr int kTileRows = 2;  // registers, of 16: 8 for sums, 4 for B, 1 for A

MS_INLINE Int load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
MS_INLINE void store(int32_t* p, Int v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
MS_INLINE Int dot(Int sum, Int a, Int b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
MS_INLINE Int spread(const int8_t* a, int64_t count) {
  const auto low = static_cast<uint16_t>(static_cast<int16_t>(a[0]));
  const auto high = static_cast<uint16_t>(count > 1 ? static_cast<int16_t>(a[1]) : int16_t{0});
  return _mm256_set1_epi32(static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | low));
}
constexpr int32_t kOffset = 0;

MS_INLINE void pack_lanes(const int8_t* b, int64_t ldb, Packed* packed) {
  const __m128i first = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)));
  const __m128i second = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + ldb)));
  auto* target = reinterpret_cast<__m128i*>(packed);
  _mm_storeu_si128(target, _mm_unpacklo_epi16(first, second));
  _mm_storeu_si128(target + 1, _mm_unpackhi_epi16(first, second));
}
MS_INLINE Int ones() { return _mm256_set1_epi16(1); }
#endif
constexpr int kVecs = 4;
constexpr int64_t kColumns = kVecs * kLanes;

// Packs a step with fewer than kDepth rows or kColumns columns.
inline void pack_edge(int64_t rows, int64_t columns, const int8_t* b, int64_t ldb, Packed* packed) {
  for (int64_t j = 0; j < kColumns; ++j) {
    for (int64_t p = 0; p < kDepth; ++p) {
      packed[j * kDepth + p] = p < rows && j < columns ? b[p * ldb + j] : int8_t{0};
    }
  }
}

// starts: receives the initial sum of each column, -kOffset times the column's sum.
inline void pack(int64_t columns, int64_t k, const int8_t* b, int64_t ldb, Packed* packed, int32_t* starts) {
  Int sums[kVecs];
  for (int v = 0; v < kVecs; ++v) sums[v] = Int{};
  for (int64_t p = 0; p < k; p += kDepth, b += kDepth * ldb, packed += kColumns * kDepth) {
    if (k - p < kDepth || columns < kColumns) {
      pack_edge(k - p < kDepth ? k - p : kDepth, columns, b, ldb, packed);
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) pack_lanes(b + v * kLanes, ldb, packed + v * kLanes * kDepth);
    }
    if (kOffset == 0) continue;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sums[v] = dot(sums[v], ones(), load(packed + v * kLanes * kDepth));
  }
  for (int v = 0; v < kVecs; ++v) store(starts + v * kLanes, sums[v]);
  for (int64_t j = 0; j < kColumns; ++j) starts[j] *= -kOffset;
}

template <int kRows>
MS_INLINE void tile(int64_t k, const int8_t* a, int64_t lda, const Packed* packed, const int32_t* starts, int32_t* c,
                    int64_t ldc) {
  Int sum[kRows][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) sum[i][v] = load(starts + v * kLanes);
  }
  int64_t p = 0;
  for (; p + kDepth <= k; p += kDepth, packed += kColumns * kDepth) {
    Int row[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) row[v] = load(packed + v * kLanes * kDepth);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Int factor = spread(a + i * lda + p, kDepth);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[i][v] = dot(sum[i][v], factor, row[v]);
    }
  }
  if (p < k) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Int factor = spread(a + i * lda + p, k - p);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) sum[i][v] = dot(sum[i][v], factor, load(packed + v * kLanes * kDepth));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(c + i * ldc + v * kLanes, sum[i][v]);
  }
}

// packed: room for ((k + kDepth - 1) / kDepth) * kDepth * kColumns elements.
inline void int8_gemm(int64_t m, int64_t n, int64_t k, const int8_t* a, int64_t lda, const int8_t* b, int64_t ldb,
                      int32_t* c, int64_t ldc, Packed* packed) {
  int32_t starts[kColumns];
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t columns = n - first < kColumns ? n - first : kColumns;
    pack(columns, k, b + first, ldb, packed, starts);
    for (int64_t i = 0; i < m; i += kTileRows) {
      const int64_t rows = m - i < kTileRows ? m - i : kTileRows;
      if (rows == kTileRows && columns == kColumns) {
        tile<kTileRows>(k, a + i * lda, lda, packed, starts, c + i * ldc + first, ldc);
        continue;
      }
      for (int64_t row = i; row < i + rows; ++row) {
        int32_t edge[kColumns];
        tile<1>(k, a + row * lda, lda, packed, starts, edge, kColumns);
        for (int64_t j = 0; j < columns; ++j) c[row * ldc + first + j] = edge[j];
      }
    }
  }
}
