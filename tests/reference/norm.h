// RMSNorm: Zhang & Sennrich 2019, equation 4; LayerNorm: Ba et al. 2016, equation 3; epsilon under the root.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

inline Array rms_norm(const Array& x, const Array& gamma, double epsilon, double gamma_offset = 0) {
  const size_t h = gamma.size();
  Array y(x.size());
  for (size_t row = 0; row * h < x.size(); ++row) {
    double square = 0;
    for (size_t i = 0; i < h; ++i) square += x[row * h + i] * x[row * h + i];
    const double rms = std::sqrt(square / static_cast<double>(h) + epsilon);
    for (size_t i = 0; i < h; ++i) y[row * h + i] = x[row * h + i] / rms * (gamma[i] + gamma_offset);
  }
  return y;
}

inline Array layer_norm(const Array& x, const Array& gamma, const Array& beta, double epsilon,
                        double gamma_offset = 0) {
  const size_t h = gamma.size();
  Array y(x.size());
  for (size_t row = 0; row * h < x.size(); ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < h; ++i) mean += x[row * h + i] / static_cast<double>(h);
    for (size_t i = 0; i < h; ++i) variance += (x[row * h + i] - mean) * (x[row * h + i] - mean);
    const double deviation = std::sqrt(variance / static_cast<double>(h) + epsilon);
    for (size_t i = 0; i < h; ++i) {
      y[row * h + i] = (x[row * h + i] - mean) / deviation * (gamma[i] + gamma_offset) + beta[i];
    }
  }
  return y;
}

}  // namespace ms::reference
