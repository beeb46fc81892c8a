// Permutation of tokens into the order of their experts and back, from the definition: a stable argsort, a one-hot
// matrix P [rows, T], permute = P x and unpermute = (P * p)^T y.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/reference/array.h"

namespace ms::reference {

// Slots (k per token) in the order of their experts.
inline std::vector<size_t> stable_argsort(const std::vector<int32_t>& experts) {
  std::vector<size_t> order(experts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return experts[a] < experts[b]; });
  return order;
}

// P, with rows of num_tokens: row j is 1 at token_of_row[j].
inline Array one_hot(const std::vector<size_t>& token_of_row, size_t num_tokens) {
  Array matrix(token_of_row.size() * num_tokens);
  for (size_t row = 0; row < token_of_row.size(); ++row) matrix[row * num_tokens + token_of_row[row]] = 1;
  return matrix;
}

// P x; x: [num_tokens, h].
inline Array permute(const Array& matrix, size_t num_tokens, const Array& x, size_t h) {
  Array y(matrix.size() / std::max<size_t>(num_tokens, 1) * h);
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t e = 0; e < h; ++e) y[i / num_tokens * h + e] += matrix[i] * x[i % num_tokens * h + e];
  }
  return y;
}

// (P * p)^T x; x: [rows, h], p: [rows].
inline Array unpermute(const Array& matrix, size_t num_tokens, const Array& p, const Array& x, size_t h) {
  Array y(num_tokens * h);
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t e = 0; e < h; ++e)
      y[i % num_tokens * h + e] += matrix[i] * p[i / num_tokens] * x[i / num_tokens * h + e];
  }
  return y;
}

}  // namespace ms::reference
