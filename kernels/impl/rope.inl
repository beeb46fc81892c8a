// Body of rope.h.

template <class T>
void rope_halves(T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin, float direction) {
  const int64_t half = dim / 2, whole = half / kLanes * kLanes, tail = half - whole;
  const Vec sign = broadcast(direction);
  for (int64_t head = 0; head < heads; ++head, x += d) {
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec c = load(cos + i), s = load(sin + i) * sign;
      const Vec first = load(x + i), second = load(x + half + i);
      store(x + i, first * c - second * s);
      store(x + half + i, second * c + first * s);
    }
    if (tail > 0) {
      const Vec c = load_partial(cos + whole, tail), s = load_partial(sin + whole, tail) * sign;
      const Vec first = load_partial(x + whole, tail), second = load_partial(x + half + whole, tail);
      store_partial(x + whole, first * c - second * s, tail);
      store_partial(x + half + whole, second * c + first * s, tail);
    }
  }
}

template <class T>
void rope_neighbours(T* x, int64_t heads, int64_t d, int64_t dim, const float* cos, const float* sin, float direction) {
  for (int64_t head = 0; head < heads; ++head, x += d) {
    for (int64_t i = 0; i < dim / 2; ++i) {
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
