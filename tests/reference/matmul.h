// C = op(A) op(B) from the definition, and the sum of magnitudes that bounds the error of any summation order.
#pragma once

#include "tests/reference/array.h"

namespace ms::reference {

struct Matmul {
  Array value;
  Array magnitude;  // sum over k of |a||b|
};

// a: [m, k], or [k, m] if transpose_a; b: [k, n], or [n, k] if transpose_b; dense.
inline Matmul matmul(const Array& a, bool transpose_a, const Array& b, bool transpose_b, int64_t m, int64_t n,
                     int64_t k) {
  Matmul c{Array(static_cast<size_t>(m * n)), Array(static_cast<size_t>(m * n))};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t p = 0; p < k; ++p) {
        const double product = a[static_cast<size_t>(transpose_a ? p * m + i : i * k + p)] *
                               b[static_cast<size_t>(transpose_b ? j * k + p : p * n + j)];
        c.value[static_cast<size_t>(i * n + j)] += product;
        c.magnitude[static_cast<size_t>(i * n + j)] += std::abs(product);
      }
    }
  }
  return c;
}

}  // namespace ms::reference
