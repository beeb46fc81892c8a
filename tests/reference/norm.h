// RMSNorm: Zhang & Sennrich 2019, equation 4, with epsilon under the root.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

inline Array rms_norm(const Array& x, const Array& gamma, double epsilon) {
  const size_t h = gamma.size();
  Array y(x.size());
  for (size_t row = 0; row * h < x.size(); ++row) {
    double square = 0;
    for (size_t i = 0; i < h; ++i) square += x[row * h + i] * x[row * h + i];
    const double rms = std::sqrt(square / static_cast<double>(h) + epsilon);
    for (size_t i = 0; i < h; ++i) y[row * h + i] = x[row * h + i] / rms * gamma[i];
  }
  return y;
}

}  // namespace ms::reference
