// Body of norm.h.
//
// Every row is passed over twice, the second time out of L1. That pass asks for the next row meanwhile, so that memory
// does not rest.

#include "kernels/impl/norm_gradient.inl"

// sum over a row of (x - shift)^kPower, in two chains; in the same order for every type, since operators that make
// their rows in fp32 promise the same bits.
template <int kPower, class T>
MS_INLINE float sum_of_powers(const T* x, int64_t h, float shift) {
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
    const float d = to_float(x[i]) - shift;
    sum += kPower == 1 ? d : d * d;
  }
  return sum;
}

// y = (x - shift) * factor * g + beta, or without shift and beta.
template <bool kCentred, class T>
MS_INLINE void norm_line(const T* x, const T* gamma, const T* beta, Vec shift, Vec factor, Vec offset, T* y,
                         bool past_caches) {
  Line<T> line = load_line(x);
  const Line<T> g = load_line(gamma), b = load_line(kCentred ? beta : gamma);
#pragma GCC unroll 2
  for (int64_t v = 0; v < kLineVecs<T>; ++v) {
    const Vec hat = (kCentred ? line.vecs[v] - shift : line.vecs[v]) * factor;
    line.vecs[v] = kCentred ? fma(hat, g.vecs[v] + offset, b.vecs[v]) : hat * (g.vecs[v] + offset);
  }
  put_line(y, line, past_caches);
}

template <bool kCentred, class T>
MS_INLINE void norm_row(const T* x, const T* gamma, const T* beta, int64_t h, Vec shift, Vec factor, Vec offset, T* y,
                        bool past_caches) {
  constexpr int64_t kLine = kLineLanes<T>;
  const int64_t whole = h / kLine * kLine;
  for (int64_t i = 0; i < whole; i += kLine) {
    prefetch(x + h + i);
    norm_line<kCentred>(x + i, gamma + i, beta + i, shift, factor, offset, y + i, past_caches);
  }
  if (whole == h) return;
  T last_x[kLine] = {}, last_gamma[kLine] = {}, last_beta[kLine] = {}, last_y[kLine];
  for (int64_t i = whole; i < h; ++i) {
    last_x[i - whole] = x[i];
    last_gamma[i - whole] = gamma[i];
    if (kCentred) last_beta[i - whole] = beta[i];
  }
  norm_line<kCentred>(last_x, last_gamma, last_beta, shift, factor, offset, last_y, false);
  for (int64_t i = whole; i < h; ++i) y[i] = last_y[i - whole];
}

template <class T>
void rms_norm(const T* x, const T* gamma, float gamma_offset, int64_t rows, int64_t h, float epsilon, T* y, float* rstd,
              Stores stores) {
  const bool past_caches = streams_lines(stores, y, h);
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float r = 1.0F / std::sqrt(sum_of_powers<2>(x, h, 0.0F) / static_cast<float>(h) + epsilon);
    if (rstd != nullptr) rstd[row] = r;
    norm_row<false>(x, gamma, gamma, h, zero(), broadcast(r), offset, y, past_caches);
  }
  finish(stores);
}

template <class T>
void layer_norm(const T* x, const T* gamma, float gamma_offset, const T* beta, int64_t rows, int64_t h, float epsilon,
                T* y, float* mean, float* rstd, Stores stores) {
  const bool past_caches = streams_lines(stores, y, h);
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    const float m = sum_of_powers<1>(x, h, 0.0F) / static_cast<float>(h);
    const float r = 1.0F / std::sqrt(sum_of_powers<2>(x, h, m) / static_cast<float>(h) + epsilon);
    if (mean != nullptr) mean[row] = m;
    if (rstd != nullptr) rstd[row] = r;
    norm_row<true>(x, gamma, beta, h, broadcast(m), broadcast(r), offset, y, past_caches);
  }
  finish(stores);
}
