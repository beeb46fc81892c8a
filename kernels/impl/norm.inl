// Body of norm.h.
//
// Every row is passed over twice, the second time out of L1. That pass asks for the next row meanwhile, so that memory
// does not rest.

#include "kernels/impl/norm_gradient.inl"

// sum over a row of (x - shift)^2, in two chains.
template <class T>
MS_INLINE float sum_of_squares(const T* x, int64_t h, float shift) {
  const int64_t whole = h / kLanes * kLanes;
  const Vec m = broadcast(shift);
  Vec sum0 = zero(), sum1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
    const Vec a = load(x + i) - m, b = load(x + i + kLanes) - m;
    sum0 = fma(a, a, sum0);
    sum1 = fma(b, b, sum1);
  }
  for (; i < whole; i += kLanes) {
    const Vec a = load(x + i) - m;
    sum0 = fma(a, a, sum0);
  }
  float sum = reduce_add(sum0 + sum1);
  for (i = whole; i < h; ++i) sum += (to_float(x[i]) - shift) * (to_float(x[i]) - shift);
  return sum;
}

template <bool kPastCaches, class T>
MS_INLINE void scale_row(const T* x, const T* gamma, int64_t h, int64_t whole, Vec factor, Vec offset, T* y) {
  for (int64_t i = 0; i < whole; i += kLanes) {
    prefetch(x + h + i);
    put<kPastCaches>(y + i, load(x + i) * factor * (load(gamma + i) + offset));
  }
}

template <class T>
void rms_norm(const T* x, const T* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon, T* y, float* rstd,
              Stores stores) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float r = 1.0F / std::sqrt(sum_of_squares(x, h, 0.0F) / static_cast<float>(h) + epsilon);
    if (rstd != nullptr) rstd[row] = r;
    const Vec factor = broadcast(r);
    if (streams(stores, y)) {
      scale_row<true>(x, gamma, h, whole, factor, offset, y);
    } else {
      scale_row<false>(x, gamma, h, whole, factor, offset, y);
    }
    if (tail > 0) {
      const Vec g = load_partial(gamma + whole, tail) + offset;
      store_partial(y + whole, load_partial(x + whole, tail) * factor * g, tail);
    }
  }
  finish(stores);
}

template <bool kPastCaches, class T>
MS_INLINE void shift_row(const T* x, const T* gamma, const T* beta, int64_t h, int64_t whole, Vec shift, Vec factor,
                         Vec offset, T* y) {
  for (int64_t i = 0; i < whole; i += kLanes) {
    prefetch(x + h + i);
    put<kPastCaches>(y + i, fma((load(x + i) - shift) * factor, load(gamma + i) + offset, load(beta + i)));
  }
}

template <class T>
void layer_norm(const T* x, const T* gamma, float gamma_offset, const T* beta, int64_t rows, int64_t h, float epsilon,
                T* y, float* mean, float* rstd, Stores stores) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    Vec sum = zero();
    for (int64_t i = 0; i < whole; i += kLanes) sum = sum + load(x + i);
    if (tail > 0) sum = sum + load_partial(x + whole, tail);
    const float m = reduce_add(sum) / static_cast<float>(h);
    const float r = 1.0F / std::sqrt(sum_of_squares(x, h, m) / static_cast<float>(h) + epsilon);
    if (mean != nullptr) mean[row] = m;
    if (rstd != nullptr) rstd[row] = r;
    const Vec shift = broadcast(m), factor = broadcast(r);
    if (streams(stores, y)) {
      shift_row<true>(x, gamma, beta, h, whole, shift, factor, offset, y);
    } else {
      shift_row<false>(x, gamma, beta, h, whole, shift, factor, offset, y);
    }
    if (tail > 0) {
      const Vec xhat = (load_partial(x + whole, tail) - shift) * factor;
      const Vec g = load_partial(gamma + whole, tail) + offset;
      store_partial(y + whole, fma(xhat, g, load_partial(beta + whole, tail)), tail);
    }
  }
  finish(stores);
}
