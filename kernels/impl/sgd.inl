// Body of sgd.h.

// The new m, from the gradient with weight decay.
MS_INLINE Vec sgd_momentum(Vec p, Vec grad, const float* m, int64_t lanes, const SgdScalars& a) {
  const Vec g = fma(broadcast(a.weight_decay), p, grad * broadcast(a.grad_scale));
  if (m == nullptr) return g;
  return fma(broadcast(a.momentum), lanes == kLanes ? load(m) : load_partial(m, lanes), g);
}

inline void sgd(float* p, float* grad, float* m, bf16* param, int64_t n, const SgdScalars& scalars) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec old = load(p + i);
    const Vec step = sgd_momentum(old, load(grad + i), m == nullptr ? nullptr : m + i, kLanes, scalars);
    const Vec next = fma(broadcast(-scalars.lr), step, old);
    store(p + i, next);
    if (m != nullptr) store(m + i, step);
    store(grad + i, zero());
    if (param != nullptr) store(param + i, next);
  }
  const int64_t tail = n - i;
  if (tail == 0) return;
  const Vec old = load_partial(p + i, tail);
  const Vec step = sgd_momentum(old, load_partial(grad + i, tail), m == nullptr ? nullptr : m + i, tail, scalars);
  const Vec next = fma(broadcast(-scalars.lr), step, old);
  store_partial(p + i, next, tail);
  if (m != nullptr) store_partial(m + i, step, tail);
  store_partial(grad + i, zero(), tail);
  if (param != nullptr) store_partial(param + i, next, tail);
}
