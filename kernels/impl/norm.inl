// Body of norm.h.
//
// Every row is passed over twice, the second time out of L1. That pass asks for the next row meanwhile, so that memory
// does not rest: of its bandwidth RMSNorm's gradient takes 77 % with this and 63 % without (Zen 4, one thread, beside
// other load).

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
MS_INLINE void rms_gradient_row(const T* dy, const T* x, const T* gamma, const T* dresidual, int64_t h, int64_t whole,
                                Vec r, Vec mean, Vec offset, T* dx) {
  for (int64_t i = 0; i < whole; i += kLanes) {
    prefetch(dy + h + i);
    prefetch(x + h + i);
    Vec gradient = r * ((load(gamma + i) + offset) * load(dy + i) - load(x + i) * r * mean);
    if (dresidual != nullptr) {
      prefetch(dresidual + h + i);
      gradient = gradient + load(dresidual + i);
    }
    put<kPastCaches>(dx + i, gradient);
  }
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* rstd,
                       const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma, Stores stores) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, dy += h, x += h, dx += h) {
    const Vec r = broadcast(rstd[row]);
    Vec sum = zero();
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec product = load(dy + i) * (load(x + i) * r);
      store(dgamma + i, load(dgamma + i) + product);
      sum = fma(product, load(gamma + i) + offset, sum);
    }
    if (tail > 0) {
      const Vec product = load_partial(dy + whole, tail) * (load_partial(x + whole, tail) * r);
      store_partial(dgamma + whole, load_partial(dgamma + whole, tail) + product, tail);
      sum = fma(product, load_partial(gamma + whole, tail) + offset, sum);
    }
    const Vec mean = broadcast(reduce_add(sum) / static_cast<float>(h));
    if (streams(stores, dx)) {
      rms_gradient_row<true>(dy, x, gamma, dresidual, h, whole, r, mean, offset, dx);
    } else {
      rms_gradient_row<false>(dy, x, gamma, dresidual, h, whole, r, mean, offset, dx);
    }
    if (tail > 0) {
      Vec gradient = r * ((load_partial(gamma + whole, tail) + offset) * load_partial(dy + whole, tail) -
                          load_partial(x + whole, tail) * r * mean);
      if (dresidual != nullptr) gradient = gradient + load_partial(dresidual + whole, tail);
      store_partial(dx + whole, gradient, tail);
    }
    if (dresidual != nullptr) dresidual += h;
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

// What LayerNorm's gradient knows of a row once its sums are made.
struct LayerRow {
  Vec m, r, mean_g, mean_xhat;
};

// dx of kLanes columns without the residual's; adds to their sums over rows.
MS_INLINE Vec layer_gradient(Vec dy, Vec x, Vec g, const LayerRow& row, Vec& dgamma, Vec& dbeta) {
  const Vec xhat = (x - row.m) * row.r;
  dgamma = fma(dy, xhat, dgamma);
  dbeta = dbeta + dy;
  return row.r * (g * dy - row.mean_g - xhat * row.mean_xhat);
}

template <bool kPastCaches, class T>
MS_INLINE void layer_gradient_row(const T* dy, const T* x, const T* gamma, const T* dresidual, int64_t h, int64_t whole,
                                  const LayerRow& row, Vec offset, T* dx, float* dgamma, float* dbeta) {
  for (int64_t i = 0; i < whole; i += kLanes) {
    prefetch(dy + h + i);
    prefetch(x + h + i);
    Vec gamma_sum = load(dgamma + i), beta_sum = load(dbeta + i);
    Vec gradient = layer_gradient(load(dy + i), load(x + i), load(gamma + i) + offset, row, gamma_sum, beta_sum);
    store(dgamma + i, gamma_sum);
    store(dbeta + i, beta_sum);
    if (dresidual != nullptr) gradient = gradient + load(dresidual + i);
    put<kPastCaches>(dx + i, gradient);
  }
}

// The first pass over a row asks for the residual's, the second for the next row; and the sums over rows are made in
// the second, which computes xhat anyway: 86 % of the bandwidth, 70 % with all three asked for in the second pass and
// the sums made in the first (Zen 4, one thread, rows of 768). Columns of two or four rows at a time, to load and store
// their sums less often, were slower. Rows that L1 does not hold beside their sums (1600: 65 %, 4096: 58 %) gain
// nothing from two to eight rows at a time by 512 columns, from the next row's sums in the loop of this one's
// gradients, nor from asking for one line in two or four.
template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* gamma, float gamma_offset, const float* mean,
                         const float* rstd, const T* dresidual, int64_t rows, int64_t h, T* dx, float* dgamma,
                         float* dbeta, Stores stores) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const Vec offset = broadcast(gamma_offset);
  for (int64_t row = 0; row < rows; ++row, dy += h, x += h, dx += h) {
    const Vec m = broadcast(mean[row]);
    Vec sum = zero(), sum_centred = zero();  // of g*dy, and of g*dy*(x - m)
    for (int64_t i = 0; i < whole; i += kLanes) {
      if (dresidual != nullptr) prefetch(dresidual + i);
      const Vec product = load(dy + i) * (load(gamma + i) + offset);
      sum = sum + product;
      sum_centred = fma(product, load(x + i) - m, sum_centred);
    }
    if (tail > 0) {  // the missing lanes of dy are 0, and so are both terms
      const Vec product = load_partial(dy + whole, tail) * (load_partial(gamma + whole, tail) + offset);
      sum = sum + product;
      sum_centred = fma(product, load_partial(x + whole, tail) - m, sum_centred);
    }
    const float r = rstd[row], n = static_cast<float>(h);
    const LayerRow known = {m, broadcast(r), broadcast(reduce_add(sum) / n),
                            broadcast(reduce_add(sum_centred) * r / n)};
    if (streams(stores, dx)) {
      layer_gradient_row<true>(dy, x, gamma, dresidual, h, whole, known, offset, dx, dgamma, dbeta);
    } else {
      layer_gradient_row<false>(dy, x, gamma, dresidual, h, whole, known, offset, dx, dgamma, dbeta);
    }
    if (tail > 0) {
      Vec gamma_sum = load_partial(dgamma + whole, tail), beta_sum = load_partial(dbeta + whole, tail);
      Vec gradient = layer_gradient(load_partial(dy + whole, tail), load_partial(x + whole, tail),
                                    load_partial(gamma + whole, tail) + offset, known, gamma_sum, beta_sum);
      store_partial(dgamma + whole, gamma_sum, tail);
      store_partial(dbeta + whole, beta_sum, tail);
      if (dresidual != nullptr) gradient = gradient + load_partial(dresidual + whole, tail);
      store_partial(dx + whole, gradient, tail);
    }
    if (dresidual != nullptr) dresidual += h;
  }
  finish(stores);
}
