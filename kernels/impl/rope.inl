// Body of rope.h.

// Loops over heads within a line of columns, so cosines and sines stay in registers.
template <class T>
void rope_halves(T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin, float direction) {
  const int64_t half = dim / 2;
  const Vec sign = broadcast(direction);
  int64_t i = 0;
  for (; i + kLineLanes<T> <= half; i += kLineLanes<T>) {
    const Line<T> c = load_for_line<T>(cos + i);
    Line<T> s = load_for_line<T>(sin + i);
    for (int64_t v = 0; v < kLineVecs<T>; ++v) s.vecs[v] = s.vecs[v] * sign;
    T* p = x + i;
    for (int64_t head = 0; head < heads; ++head, p += d) {
      Line<T> first = load_line(p), second = load_line(p + half);
#pragma GCC unroll 2
      for (int64_t v = 0; v < kLineVecs<T>; ++v) {
        const Vec a = first.vecs[v], b = second.vecs[v];
        first.vecs[v] = a * c.vecs[v] - b * s.vecs[v];
        second.vecs[v] = b * c.vecs[v] + a * s.vecs[v];
      }
      put_line(p, first, false);
      put_line(p + half, second, false);
    }
  }
  for (; i < half; i += kLanes) {
    const int64_t some = half - i < kLanes ? half - i : kLanes;
    const Vec c = load_partial(cos + i, some), s = load_partial(sin + i, some) * sign;
    T* p = x + i;
    for (int64_t head = 0; head < heads; ++head, p += d) {
      const Vec first = load_partial(p, some), second = load_partial(p + half, some);
      store_partial(p, first * c - second * s, some);
      store_partial(p + half, second * c + first * s, some);
    }
  }
}

#if MS_ISA == 1
// Lanes of the pairs in a vector: [a b ..] -> [a a b b ..], swapped neighbours, and alternating -x, +x.
MS_INLINE Vec load_doubled(const float* p) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}
MS_INLINE Vec swap_neighbours(Vec v) { return _mm256_permute_ps(v, 0xb1); }
MS_INLINE Vec rotate_lanes(Vec x, Vec cos, Vec sin) { return _mm256_addsub_ps(x * cos, swap_neighbours(x) * sin); }
#elif MS_ISA == 2
MS_INLINE Vec load_doubled(const float* p) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
MS_INLINE Vec swap_neighbours(Vec v) { return _mm512_permute_ps(v, 0xb1); }
MS_INLINE Vec rotate_lanes(Vec x, Vec cos, Vec sin) { return _mm512_fmaddsub_ps(x, cos, swap_neighbours(x) * sin); }
#endif

template <class T>
void rope_neighbours(T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin, float direction) {
  for (int64_t head = 0; head < heads; ++head, x += d) {
    int64_t i = 0;  // in pairs
#if MS_ISA > 0
    const Vec sign = broadcast(direction);
    if constexpr (std::is_same_v<T, bf16>) {  // whose lines hold the first and the second elements of the pairs
      for (; i + kLanes <= dim / 2; i += kLanes) {
        const Vec c = load(cos + i), s = load(sin + i) * sign;
        const Line<T> line = load_line(x + 2 * i);
        const Vec first = line.vecs[0], second = line.vecs[1];
        put_line(x + 2 * i, {{first * c - second * s, second * c + first * s}}, false);
      }
    }
    for (; 2 * i + kLanes <= dim; i += kLanes / 2) {
      store(x + 2 * i, rotate_lanes(load(x + 2 * i), load_doubled(cos + i), load_doubled(sin + i) * sign));
    }
#endif
    for (; i < dim / 2; ++i) {
      const float c = cos[i], s = sin[i] * direction;
      const float first = to_float(x[2 * i]), second = to_float(x[2 * i + 1]);
      x[2 * i] = T(first * c - second * s);
      x[2 * i + 1] = T(second * c + first * s);
    }
  }
}

template <class T>
void rope(RopePairs pairs, T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin,
          bool inverse) {
  const float direction = inverse ? -1.0F : 1.0F;
  if (pairs == RopePairs::kHalves) return rope_halves(x, heads, d, dim, cos, sin, direction);
  rope_neighbours(x, heads, d, dim, cos, sin, direction);
}

template <class T>
MS_INLINE Vec some(const T* p, int64_t count) {
  return count == kLanes ? load(p) : load_partial(p, count);
}
template <class T>
MS_INLINE void put_some(T* p, Vec v, int64_t count) {
  if (count == kLanes) {
    store(p, v);
  } else {
    store_partial(p, v, count);
  }
}

template <class T>
void rotate(RopePairs pairs, const T* x, const T* cos, const T* sin, int64_t d, T* y) {
  const int64_t half = d / 2;
  if (pairs == RopePairs::kHalves) {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t n = half - i < kLanes ? half - i : kLanes;
      const Vec first = some(x + i, n), second = some(x + half + i, n);
      put_some(y + i, first * some(cos + i, n) - second * some(sin + i, n), n);
      put_some(y + half + i, second * some(cos + half + i, n) + first * some(sin + half + i, n), n);
    }
    return;
  }
  for (int64_t i = 0; i < d; i += 2) {
    const float first = to_float(x[i]), second = to_float(x[i + 1]);
    y[i] = T(first * to_float(cos[i]) - second * to_float(sin[i]));
    y[i + 1] = T(second * to_float(cos[i + 1]) + first * to_float(sin[i + 1]));
  }
}

template <class T>
void rotate_backward(RopePairs pairs, const T* dy, const T* cos, const T* sin, int64_t d, T* dx) {
  const int64_t half = d / 2;
  if (pairs == RopePairs::kHalves) {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t n = half - i < kLanes ? half - i : kLanes;
      const Vec first = some(dy + i, n), second = some(dy + half + i, n);
      put_some(dx + i, first * some(cos + i, n) + second * some(sin + half + i, n), n);
      put_some(dx + half + i, second * some(cos + half + i, n) - first * some(sin + i, n), n);
    }
    return;
  }
  for (int64_t i = 0; i < d; i += 2) {
    const float first = to_float(dy[i]), second = to_float(dy[i + 1]);
    dx[i] = T(first * to_float(cos[i]) + second * to_float(sin[i + 1]));
    dx[i + 1] = T(second * to_float(cos[i + 1]) - first * to_float(sin[i]));
  }
}

template <class T>
void rotate_backward_tables(RopePairs pairs, const T* dy, const T* x, int64_t d, float* dcos, float* dsin) {
  const int64_t half = d / 2;
  if (pairs == RopePairs::kHalves) {
    for (int64_t i = 0; i < half; i += kLanes) {
      const int64_t n = half - i < kLanes ? half - i : kLanes;
      const Vec g1 = some(dy + i, n), g2 = some(dy + half + i, n), x1 = some(x + i, n), x2 = some(x + half + i, n);
      put_some(dcos + i, fma(g1, x1, some(dcos + i, n)), n);
      put_some(dcos + half + i, fma(g2, x2, some(dcos + half + i, n)), n);
      put_some(dsin + i, some(dsin + i, n) - g1 * x2, n);
      put_some(dsin + half + i, fma(g2, x1, some(dsin + half + i, n)), n);
    }
    return;
  }
  for (int64_t i = 0; i < d; i += 2) {
    const float g1 = to_float(dy[i]), g2 = to_float(dy[i + 1]), x1 = to_float(x[i]), x2 = to_float(x[i + 1]);
    dcos[i] += g1 * x1;
    dcos[i + 1] += g2 * x2;
    dsin[i] -= g1 * x2;
    dsin[i + 1] += g2 * x1;
  }
}
