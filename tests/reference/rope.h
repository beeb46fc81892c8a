// Rotary embedding as a product of complex numbers: (x1 + i x2) * e^(i angle), Su et al. 2021, section 3.2.
#pragma once

#include <complex>

#include "tests/reference/array.h"

namespace ms::reference {

// One head: element i of the first half of x[0, dim) pairs with element i of the second.
inline Array rope(const Array& head, int64_t dim, const Array& angles) {
  Array y = head;
  const auto half = static_cast<size_t>(dim / 2);
  for (size_t i = 0; i < half; ++i) {
    const std::complex<double> z = std::complex<double>(head[i], head[half + i]) * std::polar(1.0, angles[i]);
    y[i] = z.real();
    y[half + i] = z.imag();
  }
  return y;
}

}  // namespace ms::reference
