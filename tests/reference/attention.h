// Causal attention of one head: softmax(scale q k^T) v with the matrix written out (Vaswani et al. 2017, equation 1).
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

struct Attention {
  Array out;  // [seq, d]
  Array lse;  // [seq]
};

// q, k, v: [seq, d].
inline Attention causal_attention(const Array& q, const Array& k, const Array& v, int64_t seq, int64_t d,
                                  double scale) {
  const auto n = static_cast<size_t>(seq), width = static_cast<size_t>(d);
  Attention result{Array(n * width), Array(n)};
  for (size_t i = 0; i < n; ++i) {
    Array score(i + 1);
    double most = -1e300;
    for (size_t j = 0; j <= i; ++j) {
      for (size_t e = 0; e < width; ++e) score[j] += scale * q[i * width + e] * k[j * width + e];
      most = std::max(most, score[j]);
    }
    double sum = 0;
    for (size_t j = 0; j <= i; ++j) sum += std::exp(score[j] - most);
    result.lse[i] = most + std::log(sum);
    for (size_t j = 0; j <= i; ++j) {
      const double p = std::exp(score[j] - result.lse[i]);
      for (size_t e = 0; e < width; ++e) result.out[i * width + e] += p * v[j * width + e];
    }
  }
  return result;
}

}  // namespace ms::reference
