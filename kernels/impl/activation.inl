// Body of activation.h.

#include "kernels/impl/activation_functions.inl"

template <class Act, class T>
void activation_into(const T* x, int64_t n, T* y, bool non_temporal) {
  int64_t i = 0;
  for (; i + kLineLanes<T> <= n; i += kLineLanes<T>) {
    prefetch_ahead(x + i);
    Line<T> line = load_line(x + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) line.vecs[v] = Act::template value<T>(line.vecs[v]);
    put_line(y + i, line, non_temporal);
  }
  for (; i < n; i += kLanes) {
    const int64_t some = n - i < kLanes ? n - i : kLanes;
    store_partial(y + i, Act::template value<T>(load_partial(x + i, some)), some);
  }
}

template <class Act, class T>
void activation_backward_into(const T* dy, const T* x, int64_t n, T* dx, bool non_temporal) {
  int64_t i = 0;
  for (; i + kLineLanes<T> <= n; i += kLineLanes<T>) {
    prefetch_ahead(dy + i);
    prefetch_ahead(x + i);
    Line<T> line = load_line(dy + i);
    const Line<T> at = load_line(x + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) line.vecs[v] = Act::template tangent<T>(line.vecs[v], at.vecs[v]).slope;
    put_line(dx + i, line, non_temporal);
  }
  for (; i < n; i += kLanes) {
    const int64_t some = n - i < kLanes ? n - i : kLanes;
    store_partial(dx + i, Act::template tangent<T>(load_partial(dy + i, some), load_partial(x + i, some)).slope, some);
  }
}

// Prefetches the next row's [gate | up] in memory order while lines [i, i + kCount kLineLanes) of this row's halves are
// used; into L1 if two rows fit. bf16 SwiGLU then reaches 84 % of the bandwidth, 80 % with L2, and only 60 % if lines
// are prefetched in order of use, alternating between the halves (Zen 4).
template <int64_t kCount, class T>
MS_INLINE void prefetch_next_gated(const T* x, int64_t f, int64_t i) {
  constexpr int64_t kHalfOfL1 = 12288;
  const T* const next = x + 2 * (f + i);
#pragma GCC unroll 4
  for (int64_t k = 0; k < 2 * kCount; ++k) {
    const T* const line = next + k * kLineLanes<T>;
    if (2 * f * static_cast<int64_t>(sizeof(T)) <= kHalfOfL1) {
      prefetch_near(line);
      prefetch_near(prefetched_before(line));
    } else {
      prefetch_twice(line);
    }
  }
}

// Lines [i, i + kCount kLineLanes) of one row of a gated activation.
template <class Act, int64_t kCount, class T>
MS_INLINE void gated_lines(const T* x, int64_t f, int64_t i, T* y, bool non_temporal) {
  prefetch_next_gated<kCount>(x, f, i);
  Line<T> gate[kCount], up[kCount];
#pragma GCC unroll 2
  for (int64_t k = 0; k < kCount; ++k) {
    gate[k] = load_line(x + i + k * kLineLanes<T>);
    up[k] = load_line(x + f + i + k * kLineLanes<T>);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) {
      gate[k].vecs[v] = Act::template value<T>(gate[k].vecs[v]) * up[k].vecs[v];
    }
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < kCount; ++k) put_line(y + i + k * kLineLanes<T>, gate[k], non_temporal);
}

// One row of a gated activation.
template <class Act, class T>
void gated_into(const T* x, int64_t f, T* y, bool non_temporal) {
  int64_t i = 0;
  for (; i + 2 * kLineLanes<T> <= f; i += 2 * kLineLanes<T>) gated_lines<Act, 2>(x, f, i, y, non_temporal);
  if (i + kLineLanes<T> <= f) {
    gated_lines<Act, 1>(x, f, i, y, non_temporal);
    i += kLineLanes<T>;
  }
  for (; i < f; i += kLanes) {
    const int64_t some = f - i < kLanes ? f - i : kLanes;
    store_partial(y + i, Act::template value<T>(load_partial(x + i, some)) * load_partial(x + f + i, some), some);
  }
}

template <class Act, class T>
void gated_backward_into(const T* dy, const T* x, int64_t f, T* dx, bool non_temporal) {
  int64_t i = 0;
  for (; i + kLineLanes<T> <= f; i += kLineLanes<T>) {
    prefetch_next_gated<1>(x, f, i);
    prefetch_twice(dy + f + i);
    const Line<T> d = load_line(dy + i);
    Line<T> gate = load_line(x + i), up = load_line(x + f + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) {
      const Tangent at = Act::template tangent<T>(d.vecs[v], gate.vecs[v]);
      gate.vecs[v] = up.vecs[v] * at.slope;
      up.vecs[v] = at.value;
    }
    put_line(dx + i, gate, non_temporal);
    put_line(dx + f + i, up, non_temporal);
  }
  for (; i < f; i += kLanes) {
    const int64_t some = f - i < kLanes ? f - i : kLanes;
    const Tangent at = Act::template tangent<T>(load_partial(dy + i, some), load_partial(x + i, some));
    const Vec up = load_partial(x + f + i, some);
    store_partial(dx + i, up * at.slope, some);
    store_partial(dx + f + i, at.value, some);
  }
}

template <class Act, class T>
void activation_of(const T* x, int64_t n, T* y, Stores stores) {
  activation_into<Act>(x, n, y, streams_lines(stores, y, 0));
}

template <class Act, class T>
void activation_backward_of(const T* dy, const T* x, int64_t n, T* dx, Stores stores) {
  activation_backward_into<Act>(dy, x, n, dx, streams_lines(stores, dx, 0));
}

template <class Act, class T>
void gated_activation_of(const T* x, int64_t rows, int64_t f, T* y, Stores stores) {
  const bool non_temporal = streams_lines(stores, y, f);
  for (int64_t row = 0; row < rows; ++row, x += 2 * f, y += f) gated_into<Act>(x, f, y, non_temporal);
}

template <class Act, class T>
void gated_activation_backward_of(const T* dy, const T* x, int64_t rows, int64_t f, T* dx, Stores stores) {
  const bool non_temporal = streams_lines(stores, dx, f);
  for (int64_t row = 0; row < rows; ++row, dy += f, x += 2 * f, dx += 2 * f) {
    gated_backward_into<Act>(dy, x, f, dx, non_temporal);
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
    case Activation::kSquaredRelu:
      activation_of<SquaredRelu>(x, n, y, stores);
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
    case Activation::kSquaredRelu:
      activation_backward_of<SquaredRelu>(dy, x, n, dx, stores);
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
    case Activation::kSquaredRelu:
      gated_activation_of<SquaredRelu>(x, rows, f, y, stores);
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
    case Activation::kSquaredRelu:
      gated_activation_backward_of<SquaredRelu>(dy, x, rows, f, dx, stores);
      break;
  }
  finish(stores);
}

template <class T>
void sigmoid_gate(const T* x, const T* gate, int64_t n, T* y, Stores stores) {
  const bool non_temporal = streams_lines(stores, y, 0);
  int64_t i = 0;
  for (; i + kLineLanes<T> <= n; i += kLineLanes<T>) {
    prefetch_ahead(x + i);
    prefetch_ahead(gate + i);
    Line<T> line = load_line(x + i);
    const Line<T> at = load_line(gate + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) line.vecs[v] = line.vecs[v] * logistic2<T>(Silu::minus_x(at.vecs[v]));
    put_line(y + i, line, non_temporal);
  }
  for (; i < n; i += kLanes) {
    const int64_t some = n - i < kLanes ? n - i : kLanes;
    const Vec at = load_partial(gate + i, some);
    store_partial(y + i, load_partial(x + i, some) * logistic2<T>(Silu::minus_x(at)), some);
  }
  finish(stores);
}

template <class T>
void sigmoid_gate_backward(const T* dy, const T* x, const T* gate, int64_t n, T* dx, T* dgate) {
  int64_t i = 0;
  for (; i + kLineLanes<T> <= n; i += kLineLanes<T>) {
    prefetch_ahead(dy + i);
    prefetch_ahead(x + i);
    prefetch_ahead(gate + i);
    Line<T> line = load_line(dy + i), at = load_line(gate + i);
    const Line<T> of = load_line(x + i);
#pragma GCC unroll 2
    for (int64_t v = 0; v < kLineVecs<T>; ++v) {
      const Logistic s = logistic2_and_rest<T>(Silu::minus_x(at.vecs[v]));
      line.vecs[v] = line.vecs[v] * s.value;
      at.vecs[v] = line.vecs[v] * of.vecs[v] * s.rest;
    }
    put_line(dx + i, line, false);
    put_line(dgate + i, at, false);
  }
  for (; i < n; i += kLanes) {
    const int64_t some = n - i < kLanes ? n - i : kLanes;
    const Logistic s = logistic2_and_rest<T>(Silu::minus_x(load_partial(gate + i, some)));
    const Vec d = load_partial(dy + i, some) * s.value, of = load_partial(x + i, some);
    store_partial(dx + i, d, some);
    store_partial(dgate + i, d * of * s.rest, some);
  }
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
