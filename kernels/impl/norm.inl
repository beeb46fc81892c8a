// Body of norm.h.

template <class T>
void rms_norm(const T* x, const T* gamma, int64_t rows, int64_t h, float epsilon, T* y, float* rstd) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  for (int64_t row = 0; row < rows; ++row, x += h, y += h) {
    Vec sum0 = zero(), sum1 = zero();
    int64_t i = 0;
    for (; i + 2 * kLanes <= whole; i += 2 * kLanes) {
      const Vec a = load(x + i), b = load(x + i + kLanes);
      sum0 = fma(a, a, sum0);
      sum1 = fma(b, b, sum1);
    }
    for (; i < whole; i += kLanes) sum0 = fma(load(x + i), load(x + i), sum0);
    if (tail > 0) {
      const Vec a = load_partial(x + whole, tail);
      sum1 = fma(a, a, sum1);
    }
    const float mean = reduce_add(sum0 + sum1) / static_cast<float>(h);
    const float r = 1.0F / std::sqrt(mean + epsilon);
    if (rstd != nullptr) rstd[row] = r;
    const Vec factor = broadcast(r);
    for (i = 0; i < whole; i += kLanes) store(y + i, load(x + i) * factor * load(gamma + i));
    if (tail > 0) {
      store_partial(y + whole, load_partial(x + whole, tail) * factor * load_partial(gamma + whole, tail), tail);
    }
  }
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* gamma, const float* rstd, const T* dresidual, int64_t rows,
                       int64_t h, T* dx, float* dgamma) {
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  for (int64_t row = 0; row < rows; ++row, dy += h, x += h, dx += h) {
    const Vec r = broadcast(rstd[row]);
    Vec sum = zero();
    for (int64_t i = 0; i < whole; i += kLanes) {
      const Vec product = load(dy + i) * (load(x + i) * r);
      store(dgamma + i, load(dgamma + i) + product);
      sum = fma(product, load(gamma + i), sum);
    }
    if (tail > 0) {
      const Vec product = load_partial(dy + whole, tail) * (load_partial(x + whole, tail) * r);
      store_partial(dgamma + whole, load_partial(dgamma + whole, tail) + product, tail);
      sum = fma(product, load_partial(gamma + whole, tail), sum);
    }
    const Vec mean = broadcast(reduce_add(sum) / static_cast<float>(h));
    for (int64_t i = 0; i < whole; i += kLanes) {
      Vec gradient = r * (load(gamma + i) * load(dy + i) - load(x + i) * r * mean);
      if (dresidual != nullptr) gradient = gradient + load(dresidual + i);
      store(dx + i, gradient);
    }
    if (tail > 0) {
      Vec gradient = r * (load_partial(gamma + whole, tail) * load_partial(dy + whole, tail) -
                          load_partial(x + whole, tail) * r * mean);
      if (dresidual != nullptr) gradient = gradient + load_partial(dresidual + whole, tail);
      store_partial(dx + whole, gradient, tail);
    }
    if (dresidual != nullptr) dresidual += h;
  }
}
