// Body of activation.h.

#include "kernels/impl/activation_functions.inl"

template <class Act, bool kPastCaches, class T>
void activation_into(const T* x, int64_t n, T* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch_ahead(x + i);
    put<kPastCaches>(y + i, Act::value(load(x + i)));
  }
  if (i < n) store_partial(y + i, Act::value(load_partial(x + i, n - i)), n - i);
}

template <class Act, bool kPastCaches, class T>
void activation_backward_into(const T* dy, const T* x, int64_t n, T* dx) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    prefetch_ahead(dy + i);
    prefetch_ahead(x + i);
    put<kPastCaches>(dx + i, load(dy + i) * Act::slope(load(x + i)));
  }
  if (i < n) store_partial(dx + i, load_partial(dy + i, n - i) * Act::slope(load_partial(x + i, n - i)), n - i);
}

// How far behind element i of a row [gate | up] memory is asked for: what follows a half's last elements is the next
// row's same half. With the same distance for all of a row SwiGLU takes 66 % of the bandwidth and not 88 (Zen 4).
template <class T>
struct GatedAhead {
  explicit GatedAhead(int64_t f) : near(kAheadBytes / static_cast<int64_t>(sizeof(T))), far(near + f), turn(f - near) {}
  MS_INLINE int64_t at(int64_t i) const { return i < turn ? near : far; }
  int64_t near, far, turn;
};

// One row of a gated activation.
template <class Act, bool kPastCaches, class T>
void gated_into(const T* x, int64_t f, T* y) {
  const int64_t whole = f / kLanes * kLanes, tail = f - whole;
  const GatedAhead<T> ahead(f);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const T* const next = x + i + ahead.at(i);
    prefetch(next);
    prefetch(next + f);
    put<kPastCaches>(y + i, Act::value(load(x + i)) * load(x + f + i));
  }
  if (tail > 0) {
    const Vec gate = load_partial(x + whole, tail);
    store_partial(y + whole, Act::value(gate) * load_partial(x + f + whole, tail), tail);
  }
}

template <class Act, bool kPastCaches, class T>
void gated_backward_into(const T* dy, const T* x, int64_t f, T* dx) {
  const int64_t whole = f / kLanes * kLanes, tail = f - whole;
  const GatedAhead<T> ahead(f);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const T* const next = x + i + ahead.at(i);
    prefetch_ahead(dy + i);
    prefetch(next);
    prefetch(next + f);
    const Vec d = load(dy + i), gate = load(x + i), up = load(x + f + i);
    put<kPastCaches>(dx + i, d * up * Act::slope(gate));
    put<kPastCaches>(dx + f + i, d * Act::value(gate));
  }
  if (tail > 0) {
    const Vec d = load_partial(dy + whole, tail), gate = load_partial(x + whole, tail);
    const Vec up = load_partial(x + f + whole, tail);
    store_partial(dx + whole, d * up * Act::slope(gate), tail);
    store_partial(dx + f + whole, d * Act::value(gate), tail);
  }
}

template <class Act, class T>
void activation_of(const T* x, int64_t n, T* y, Stores stores) {
  if (streams(stores, y)) return activation_into<Act, true>(x, n, y);
  activation_into<Act, false>(x, n, y);
}

template <class Act, class T>
void activation_backward_of(const T* dy, const T* x, int64_t n, T* dx, Stores stores) {
  if (streams(stores, dx)) return activation_backward_into<Act, true>(dy, x, n, dx);
  activation_backward_into<Act, false>(dy, x, n, dx);
}

template <class Act, class T>
void gated_activation_of(const T* x, int64_t rows, int64_t f, T* y, Stores stores) {
  for (int64_t row = 0; row < rows; ++row, x += 2 * f, y += f) {
    if (streams(stores, y)) {
      gated_into<Act, true>(x, f, y);
    } else {
      gated_into<Act, false>(x, f, y);
    }
  }
}

template <class Act, class T>
void gated_activation_backward_of(const T* dy, const T* x, int64_t rows, int64_t f, T* dx, Stores stores) {
  for (int64_t row = 0; row < rows; ++row, dy += f, x += 2 * f, dx += 2 * f) {
    if (streams(stores, dx) && streams(stores, dx + f)) {
      gated_backward_into<Act, true>(dy, x, f, dx);
    } else {
      gated_backward_into<Act, false>(dy, x, f, dx);
    }
  }
}

template <class T>
void activation(Activation kind, const T* x, int64_t n, T* y, Stores stores) {
  switch (kind) {
    case Activation::kSilu:
      activation_of<Silu>(x, n, y, stores);
      break;
    case Activation::kGelu:
      activation_of<Gelu>(x, n, y, stores);
      break;
    case Activation::kGeluTanh:
      activation_of<GeluTanh>(x, n, y, stores);
      break;
    case Activation::kFastGelu:
      activation_of<FastGelu>(x, n, y, stores);
      break;
    case Activation::kRelu:
      activation_of<Relu>(x, n, y, stores);
      break;
  }
  finish(stores);
}

template <class T>
void activation_backward(Activation kind, const T* dy, const T* x, int64_t n, T* dx, Stores stores) {
  switch (kind) {
    case Activation::kSilu:
      activation_backward_of<Silu>(dy, x, n, dx, stores);
      break;
    case Activation::kGelu:
      activation_backward_of<Gelu>(dy, x, n, dx, stores);
      break;
    case Activation::kGeluTanh:
      activation_backward_of<GeluTanh>(dy, x, n, dx, stores);
      break;
    case Activation::kFastGelu:
      activation_backward_of<FastGelu>(dy, x, n, dx, stores);
      break;
    case Activation::kRelu:
      activation_backward_of<Relu>(dy, x, n, dx, stores);
      break;
  }
  finish(stores);
}

template <class T>
void gated_activation(Activation kind, const T* x, int64_t rows, int64_t f, T* y, Stores stores) {
  switch (kind) {
    case Activation::kSilu:
      gated_activation_of<Silu>(x, rows, f, y, stores);
      break;
    case Activation::kGelu:
      gated_activation_of<Gelu>(x, rows, f, y, stores);
      break;
    case Activation::kGeluTanh:
      gated_activation_of<GeluTanh>(x, rows, f, y, stores);
      break;
    case Activation::kFastGelu:
      gated_activation_of<FastGelu>(x, rows, f, y, stores);
      break;
    case Activation::kRelu:
      gated_activation_of<Relu>(x, rows, f, y, stores);
      break;
  }
  finish(stores);
}

template <class T>
void gated_activation_backward(Activation kind, const T* dy, const T* x, int64_t rows, int64_t f, T* dx,
                               Stores stores) {
  switch (kind) {
    case Activation::kSilu:
      gated_activation_backward_of<Silu>(dy, x, rows, f, dx, stores);
      break;
    case Activation::kGelu:
      gated_activation_backward_of<Gelu>(dy, x, rows, f, dx, stores);
      break;
    case Activation::kGeluTanh:
      gated_activation_backward_of<GeluTanh>(dy, x, rows, f, dx, stores);
      break;
    case Activation::kFastGelu:
      gated_activation_backward_of<FastGelu>(dy, x, rows, f, dx, stores);
      break;
    case Activation::kRelu:
      gated_activation_backward_of<Relu>(dy, x, rows, f, dx, stores);
      break;
  }
  finish(stores);
}

inline void softcap(const float* x, int64_t n, float cap, float* y) {
  const Vec scale = broadcast(cap), inverse = broadcast(1.0F / cap);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, scale * tanh(load(x + i) * inverse));
  if (i < n) store_partial(y + i, scale * tanh(load_partial(x + i, n - i) * inverse), n - i);
}

inline void softcap_backward(const float* dy, const float* y, int64_t n, float cap, float* dx) {
  const Vec one = broadcast(1.0F), inverse = broadcast(1.0F / cap);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec t = load(y + i) * inverse;
    store(dx + i, load(dy + i) * (one - t * t));
  }
  if (i < n) {
    const Vec t = load_partial(y + i, n - i) * inverse;
    store_partial(dx + i, load_partial(dy + i, n - i) * (one - t * t), n - i);
  }
}

inline void exp_span(const float* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, exp(load(x + i)));
  if (i < n) store_partial(y + i, exp(load_partial(x + i, n - i)), n - i);
}
