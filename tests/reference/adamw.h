// AdamW: Loshchilov & Hutter 2019, algorithm 2 with eta = 1, learning rate inside the decay as Megatron applies it.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

struct AdamwState {
  Array p, m, v;
  Array ema = {};  // of p; empty: none
};

inline void adamw(AdamwState& s, const Array& grad, double lr, double beta1, double beta2, double eps,
                  double weight_decay, int64_t step, double ema_decay = 0) {
  for (size_t i = 0; i < s.p.size(); ++i) {
    s.m[i] = beta1 * s.m[i] + (1 - beta1) * grad[i];
    s.v[i] = beta2 * s.v[i] + (1 - beta2) * grad[i] * grad[i];
    const double m_hat = s.m[i] / (1 - std::pow(beta1, static_cast<double>(step)));
    const double v_hat = s.v[i] / (1 - std::pow(beta2, static_cast<double>(step)));
    s.p[i] -= lr * (m_hat / (std::sqrt(v_hat) + eps) + weight_decay * s.p[i]);
    if (!s.ema.empty()) s.ema[i] = ema_decay * s.ema[i] + (1 - ema_decay) * s.p[i];
  }
}

}  // namespace ms::reference
