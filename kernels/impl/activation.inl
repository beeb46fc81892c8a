// Body of activation.h.

template <class T>
void swiglu(const T* x, int64_t rows, int64_t f, T* y) {
  const int64_t whole = f / kLanes * kLanes, tail = f - whole;
  for (int64_t row = 0; row < rows; ++row, x += 2 * f, y += f) {
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec gate = load(x + i);
      store(y + i, gate * sigmoid(gate) * load(x + f + i));
    }
    if (tail > 0) {
      const Vec gate = load_partial(x + whole, tail);
      store_partial(y + whole, gate * sigmoid(gate) * load_partial(x + f + whole, tail), tail);
    }
  }
}

MS_INLINE Vec swiglu_dgate(Vec dy, Vec gate, Vec up, Vec s) {
  const Vec one = broadcast(1.0F);
  return dy * up * s * fma(gate, one - s, one);
}

template <class T>
void swiglu_backward(const T* dy, const T* x, int64_t rows, int64_t f, T* dx) {
  const int64_t whole = f / kLanes * kLanes, tail = f - whole;
  for (int64_t row = 0; row < rows; ++row, dy += f, x += 2 * f, dx += 2 * f) {
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec d = load(dy + i), gate = load(x + i), up = load(x + f + i), s = sigmoid(gate);
      store(dx + i, swiglu_dgate(d, gate, up, s));
      store(dx + f + i, d * gate * s);
    }
    if (tail > 0) {
      const Vec d = load_partial(dy + whole, tail), gate = load_partial(x + whole, tail);
      const Vec up = load_partial(x + f + whole, tail), s = sigmoid(gate);
      store_partial(dx + whole, swiglu_dgate(d, gate, up, s), tail);
      store_partial(dx + f + whole, d * gate * s, tail);
    }
  }
}

inline void exp_span(const float* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, exp(load(x + i)));
  if (i < n) store_partial(y + i, exp(load_partial(x + i, n - i)), n - i);
}
