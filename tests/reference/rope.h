// Rotary embedding as a product of complex numbers: (x1 + i x2) * e^(i angle), Su et al. 2021, section 3.2.
#pragma once

#include <complex>

#include "tests/reference/array.h"

namespace ms::reference {

// One head: element i of the first half of x[0, dim) pairs with element i of the second half, or with its neighbour.
inline Array rope(const Array& head, int64_t dim, const Array& angles, bool neighbours = false) {
  Array y = head;
  const auto half = static_cast<size_t>(dim / 2);
  for (size_t i = 0; i < half; ++i) {
    const size_t first = neighbours ? 2 * i : i, second = neighbours ? 2 * i + 1 : half + i;
    const std::complex<double> z = std::complex<double>(head[first], head[second]) * std::polar(1.0, angles[i]);
    y[first] = z.real();
    y[second] = z.imag();
  }
  return y;
}

}  // namespace ms::reference
