// Body of adamw.h.

#include "kernels/impl/halves.inl"

struct AdamwState {
  Vec p, m, v;
};

MS_INLINE AdamwState adamw_update(AdamwState s, Vec grad, const AdamwScalars& a) {
  const Vec g = grad * broadcast(a.grad_scale);
  s.m = fma(broadcast(a.beta1), s.m, broadcast(a.one_minus_beta1) * g);
  s.v = fma(broadcast(a.beta2), s.v, broadcast(a.one_minus_beta2) * g * g);
  const Vec numerator = s.m / broadcast(a.bias_correction1);
  const Vec denominator = sqrt(s.v / broadcast(a.bias_correction2)) + broadcast(a.eps);
  const Vec update = fma(broadcast(a.weight_decay), s.p, numerator / denominator);
  s.p = s.p - broadcast(a.lr) * update;
  return s;
}

MS_INLINE Vec ema_update(Vec ema, Vec p, const AdamwScalars& a) {
  return fma(broadcast(a.ema_decay), ema, broadcast(a.one_minus_ema_decay) * p);
}

inline void adamw(float* p, float* grad, float* m, float* v, bf16* param, float* ema, int64_t n,
                  const AdamwScalars& scalars) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const AdamwState next = adamw_update({load(p + i), load(m + i), load(v + i)}, load(grad + i), scalars);
    store(p + i, next.p);
    store(m + i, next.m);
    store(v + i, next.v);
    store(grad + i, zero());
    if (param != nullptr) store(param + i, next.p);
    if (ema != nullptr) store(ema + i, ema_update(load(ema + i), next.p, scalars));
  }
  const int64_t tail = n - i;
  if (tail == 0) return;
  const AdamwState next =
      adamw_update({load_partial(p + i, tail), load_partial(m + i, tail), load_partial(v + i, tail)},
                   load_partial(grad + i, tail), scalars);
  store_partial(p + i, next.p, tail);
  store_partial(m + i, next.m, tail);
  store_partial(v + i, next.v, tail);
  store_partial(grad + i, zero(), tail);
  if (param != nullptr) store_partial(param + i, next.p, tail);
  if (ema != nullptr) store_partial(ema + i, ema_update(load_partial(ema + i, tail), next.p, scalars), tail);
}

inline void adamw(const Fp32Halves& p, float* grad, float* m, int64_t n, const AdamwScalars& scalars) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Fp32Halves at = p.from(i);
    const Vec v = load(at.marks);
    const AdamwState next =
        adamw_update({join_halves(at.high, at.low, v), load(m + i), without_sign(v)}, load(grad + i), scalars);
    store(at.marks, split_halves(next.p, next.v, at.high, at.low));
    store(m + i, next.m);
    store(grad + i, zero());
  }
  const int64_t tail = n - i;
  if (tail == 0) return;
  const Fp32Halves at = p.from(i);
  HalvesLanes lanes;
  lanes.get(at, tail);
  const Vec v = load_partial(at.marks, tail);
  const AdamwState next =
      adamw_update({join_halves(lanes.high, lanes.low, v), load_partial(m + i, tail), without_sign(v)},
                   load_partial(grad + i, tail), scalars);
  store_partial(at.marks, split_halves(next.p, next.v, lanes.high, lanes.low), tail);
  store_partial(m + i, next.m, tail);
  store_partial(grad + i, zero(), tail);
  lanes.put(at, tail);
}

inline double sum_of_squares(const float* values, int64_t n) {
  constexpr int kSums = 16;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int lane = 0; lane < kSums; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  double total = 0;
  for (int lane = 0; lane < kSums; ++lane) total += sums[lane];
  for (; i < n; ++i) total += static_cast<double>(values[i]) * values[i];
  return total;
}
