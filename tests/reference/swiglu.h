// SwiGLU: Shazeer 2020, equation 5 without bias, on rows of [gate | up].
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

inline Array swiglu(const Array& x, int64_t f) {
  const auto width = static_cast<size_t>(f);
  Array y(x.size() / 2);
  for (size_t row = 0; row < (width == 0 ? 0 : y.size() / width); ++row) {
    for (size_t i = 0; i < width; ++i) {
      const double gate = x[row * 2 * width + i], up = x[row * 2 * width + width + i];
      y[row * width + i] = gate / (1 + std::exp(-gate)) * up;
    }
  }
  return y;
}

}  // namespace ms::reference
