// Body of dropout_add.h.

// `count` floats of p, or 1 if p is null; lanes beyond `count` are undefined.
MS_INLINE Vec load_or_one(const float* p, int64_t i, int64_t count) {
  if (p == nullptr) return broadcast(1.0F);
  return count == kLanes ? load(p + i) : load_partial(p + i, count);
}

template <class T>
MS_INLINE Vec load_some(const T* p, int64_t count) {
  return count == kLanes ? load(p) : load_partial(p, count);
}

template <class T>
MS_INLINE void store_some(T* p, Vec v, int64_t count) {
  if (count == kLanes) {
    store(p, v);
  } else {
    store_partial(p, v, count);
  }
}

template <class T, class Z>
MS_INLINE Vec dropout_add_value(const T* x, Vec scale, const float* layerscale, const float* factors, const Z* residual,
                                int64_t i, int64_t count) {
  const Vec value =
      load_some(x + i, count) * scale * load_or_one(layerscale, i, count) * load_or_one(factors, i, count);
  return residual != nullptr ? value + load_some(residual + i, count) : value;
}

template <bool kNonTemporal, class T, class Z>
MS_INLINE void dropout_add_into(const T* x, Vec scale, const float* layerscale, const float* factors, const Z* residual,
                                int64_t whole, Z* z, Z* non_temporal) {
  for (int64_t i = 0; i < whole; i += kLanes) {
    prefetch_ahead(x + i);
    if (residual != nullptr) prefetch_ahead(residual + i);
    const Vec value = dropout_add_value(x, scale, layerscale, factors, residual, i, kLanes);
    store(z + i, value);
    if (kNonTemporal) put<true>(non_temporal + i, value);
  }
}

template <class T, class Z>
void dropout_add(const T* x, float rowscale, const float* layerscale, const float* factors, const Z* residual,
                 int64_t h, Z* z, Z* non_temporal) {
  const Vec scale = broadcast(rowscale);
  const int64_t whole = h / kLanes * kLanes, tail = h - whole;
  const bool streamed = non_temporal != nullptr && streams(Stores::kNonTemporal, non_temporal);
  if (streamed) {
    dropout_add_into<true>(x, scale, layerscale, factors, residual, whole, z, non_temporal);
  } else {
    dropout_add_into<false>(x, scale, layerscale, factors, residual, whole, z, non_temporal);
  }
  if (tail > 0) store_partial(z + whole, dropout_add_value(x, scale, layerscale, factors, residual, whole, tail), tail);
  if (non_temporal == nullptr) return;
  const int64_t done = streamed ? whole : 0;
  std::memcpy(non_temporal + done, z + done, static_cast<size_t>(h - done) * sizeof(Z));
  finish(Stores::kNonTemporal);
}

// Gradients of elements [i, i + count) of a row. Returns sum plus their lane-wise contribution to rowscale's gradient.
template <class T>
MS_INLINE Vec dropout_add_backward_step(const float* dz, const T* x, Vec scale, const float* layerscale,
                                        const float* factors, int64_t i, int64_t count, Vec sum, T* dx,
                                        float* dlayerscale) {
  const Vec of_column = load_or_one(layerscale, i, count), value = load_some(x + i, count);
  const Vec dropped = load_some(dz + i, count) * load_or_one(factors, i, count);  // 0 in lanes beyond count
  if (dlayerscale != nullptr) {
    store_some(dlayerscale + i, fma(dropped * value, scale, load_some(dlayerscale + i, count)), count);
  }
  store_some(dx + i, dropped * scale * of_column, count);
  return fma(dropped * value, of_column, sum);
}

template <class T>
float dropout_add_backward(const float* dz, const T* x, float rowscale, const float* layerscale, const float* factors,
                           int64_t h, T* dx, float* dlayerscale) {
  const Vec scale = broadcast(rowscale);
  Vec sum = zero();
  int64_t i = 0;
  for (; i + kLanes <= h; i += kLanes) {
    sum = dropout_add_backward_step(dz, x, scale, layerscale, factors, i, kLanes, sum, dx, dlayerscale);
  }
  if (i < h) sum = dropout_add_backward_step(dz, x, scale, layerscale, factors, i, h - i, sum, dx, dlayerscale);
  return reduce_add(sum);
}
