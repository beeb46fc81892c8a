// Body of dropout_add.h.

// So many floats of p, or 1 where p is null; the lanes beyond `count` are not defined.
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
void dropout_add(const T* x, float rowscale, const float* layerscale, const float* factors, const Z* residual,
                 int64_t h, Z* z) {
  const Vec scale = broadcast(rowscale);
  for (int64_t i = 0; i < h; i += kLanes) {
    const int64_t count = h - i < kLanes ? h - i : kLanes;
    Vec value = load_some(x + i, count) * scale * load_or_one(layerscale, i, count) * load_or_one(factors, i, count);
    if (residual != nullptr) value = value + load_some(residual + i, count);
    store_some(z + i, value, count);
  }
}

template <class T>
float dropout_add_backward(const float* dz, const T* x, float rowscale, const float* layerscale, const float* factors,
                           int64_t h, T* dx, float* dlayerscale) {
  const Vec scale = broadcast(rowscale);
  Vec sum = zero();
  for (int64_t i = 0; i < h; i += kLanes) {
    const int64_t count = h - i < kLanes ? h - i : kLanes;
    const Vec of_column = load_or_one(layerscale, i, count), value = load_some(x + i, count);
    const Vec dropped = load_some(dz + i, count) * load_or_one(factors, i, count);  // 0 in lanes beyond count
    sum = fma(dropped * value, of_column, sum);
    if (dlayerscale != nullptr) {
      store_some(dlayerscale + i, fma(dropped * value, scale, load_some(dlayerscale + i, count)), count);
    }
    store_some(dx + i, dropped * scale * of_column, count);
  }
  return reduce_add(sum);
}
