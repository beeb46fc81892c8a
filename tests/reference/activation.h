// Activation functions of the MLP and their gated forms (Shazeer 2020, section 2, without bias).
#pragma once

#include <numbers>

#include "kernels/activation.h"
#include "tests/reference/array.h"

namespace ms::reference {

inline double activation(kernels::Activation kind, double x) {
  switch (kind) {
    case kernels::Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case kernels::Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::kFastGelu:
      return x / (1 + std::exp(-1.702 * x));
    case kernels::Activation::kRelu:
      return x < 0 ? 0 : x;
    case kernels::Activation::kSquaredRelu:
      return x < 0 ? 0 : x * x;
    case kernels::Activation::kSilu:
      break;
  }
  return x / (1 + std::exp(-x));
}

inline Array activation(kernels::Activation kind, const Array& x) {
  Array y;
  for (const double value : x) y.push_back(activation(kind, value));
  return y;
}

// With AVX-512, the kernels compute the logistic function for bf16 with a relative error of 1.4e-4. A value has the
// same relative error. A slope s + x s (1 - s) u'(x), whose second term is at most 0.5 (3 u s (1 - s) in GELU's tanh
// form), has an absolute error of 1.4e-4 + 0.5 (1.4e-4 + 2.1e-4).
template <class T>
constexpr double kValueError = std::is_same_v<T, kernels::bf16> ? 1.4e-4 : 0;
template <class T>
constexpr double kSlopeError = std::is_same_v<T, kernels::bf16> ? 3.2e-4 : 0;

// An output gate: x * sigmoid(gate).
inline Array sigmoid_gate(const Array& x, const Array& gate) {
  Array y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / (1 + std::exp(-gate[i]));
  return y;
}

// x: rows of [gate | up].
inline Array gated_activation(kernels::Activation kind, const Array& x, int64_t f) {
  const auto width = static_cast<size_t>(f);
  Array y(x.size() / 2);
  for (size_t row = 0; row < (width == 0 ? 0 : y.size() / width); ++row) {
    for (size_t i = 0; i < width; ++i) {
      y[row * width + i] = activation(kind, x[row * 2 * width + i]) * x[row * 2 * width + width + i];
    }
  }
  return y;
}

}  // namespace ms::reference
