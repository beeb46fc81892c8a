// Body of norm.h.
//
// A row of fp32 is passed over two or three times, all but the first time from L1. The last pass prefetches the next
// row to keep memory busy.

#include "kernels/impl/norm_gradient.inl"
#include "kernels/impl/norm_halves.inl"

// sum over a row of (x - shift)^kPower, in two chains.
template <int kPower>
MS_INLINE float sum_of_powers(const float* x, int64_t h, float shift) {
  const Vec m = broadcast(shift);
  Vec sum0 = zero(), sum1 = zero();
  int64_t i = 0;
  for (; i + 2 * kLanes <= h; i += 2 * kLanes) {
    const Vec a = load(x + i) - m, b = load(x + i + kLanes) - m;
    sum0 = kPower == 1 ? sum0 + a : fma(a, a, sum0);
    sum1 = kPower == 1 ? sum1 + b : fma(b, b, sum1);
  }
  if (i + kLanes <= h) {
    const Vec a = load(x + i) - m;
    sum0 = kPower == 1 ? sum0 + a : fma(a, a, sum0);
    i += kLanes;
  }
  float sum = reduce_add(sum0 + sum1);
  for (; i < h; ++i) {
    const float d = x[i] - shift;
    sum += kPower == 1 ? d : d * d;
  }
  return sum;
}

// (x - shift) * factor * g + beta; without shift and beta unless kCentred.
template <bool kCentred>
MS_INLINE Vec norm_value(Vec x, Vec gamma, Vec beta, Vec shift, Vec factor, Vec offset) {
  const Vec hat = (kCentred ? x - shift : x) * factor, g = gamma + offset;
  return kCentred ? fma(hat, g, beta) : hat * g;
}

template <bool kCentred>
MS_INLINE void norm_row(const float* x, const float* gamma, const float* beta, int64_t h, Vec shift, Vec factor,
                        Vec offset, float* y, bool non_temporal) {
  int64_t i = 0;
  for (; i + kLanes <= h; i += kLanes) {
    prefetch(x + h + i);
    const Vec b = kCentred ? load(beta + i) : zero();
    const Vec value = norm_value<kCentred>(load(x + i), load(gamma + i), b, shift, factor, offset);
    non_temporal ? put<true>(y + i, value) : store(y + i, value);
  }
  if (i == h) return;
  const Vec b = kCentred ? load_partial(beta + i, h - i) : zero();
  const Vec last_x = load_partial(x + i, h - i), last_gamma = load_partial(gamma + i, h - i);
  store_partial(y + i, norm_value<kCentred>(last_x, last_gamma, b, shift, factor, offset), h - i);
}

inline void rms_norm(const float* x, const float* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon,
                     float* y, float* rstd, Stores stores) {
  const bool non_temporal = streams_lines(stores, y, h);
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float r = 1.0F / std::sqrt(sum_of_powers<2>(x, h, 0.0F) / static_cast<float>(h) + epsilon);
    if (rstd != nullptr) rstd[row] = r;
    norm_row<false>(x, gamma, nullptr, h, zero(), broadcast(r), offset, y, non_temporal);
  }
  finish(stores);
}

template <class T>
void rms_norm(const T* x, const T* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon, T* y, float* rstd,
              Stores stores) {
  const Vec offset = broadcast(gamma_offset);
  half_norms<false>(HalfNorm<T>{nullptr, x, gamma, nullptr, offset, y, h, streams_lines(stores, y, h)}, rows, epsilon,
                    nullptr, rstd);
  finish(stores);
}

inline void layer_norm(const float* x, const float* gamma, float gamma_offset, const float* beta, int64_t rows,
                       int64_t h, float epsilon, float* y, float* mean, float* rstd, Stores stores) {
  const bool non_temporal = streams_lines(stores, y, h);
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float m = sum_of_powers<1>(x, h, 0.0F) / static_cast<float>(h);
    const float r = 1.0F / std::sqrt(sum_of_powers<2>(x, h, m) / static_cast<float>(h) + epsilon);
    if (mean != nullptr) mean[row] = m;
    if (rstd != nullptr) rstd[row] = r;
    norm_row<true>(x, gamma, beta, h, broadcast(m), broadcast(r), offset, y, non_temporal);
  }
  finish(stores);
}

template <class T>
void layer_norm(const T* x, const T* gamma, float gamma_offset, const T* beta, int64_t rows, int64_t h, float epsilon,
                T* y, float* mean, float* rstd, Stores stores) {
  const Vec offset = broadcast(gamma_offset);
  half_norms<true>(HalfNorm<T>{nullptr, x, gamma, beta, offset, y, h, streams_lines(stores, y, h)}, rows, epsilon, mean,
                   rstd);
  finish(stores);
}
