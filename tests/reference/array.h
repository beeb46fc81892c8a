// Building blocks of the references: arrays of double, roundoffs for tolerances, and numeric gradients.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/fp16.h"

namespace ms::reference {

using Array = std::vector<double>;

// Unit roundoff of a storage type: half a unit in the last place, relative.
template <class T>
constexpr double roundoff();
template <>
constexpr double roundoff<float>() {
  return 0x1p-24;
}
template <>
constexpr double roundoff<kernels::bf16>() {
  return 0x1p-8;
}
template <>
constexpr double roundoff<kernels::fp16>() {
  return 0x1p-11;
}
// Half the spacing of its smallest numbers: the rounding error near zero.
template <class T>
constexpr double underflow() {
  return 0x1p-134;
}
template <>
constexpr double underflow<float>() {
  return 0x1p-150;
}
template <>
constexpr double underflow<kernels::fp16>() {
  return 0x1p-25;
}
constexpr double kFp32 = roundoff<float>();

template <class T>
Array to_double(const std::vector<T>& values) {
  Array result;
  result.reserve(values.size());
  for (const T value : values) result.push_back(static_cast<double>(kernels::to_float(value)));
  return result;
}

inline double max_abs(const Array& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// d loss / d x by central differences. loss: a function of the whole array. In double with step 1e-5 the error is about
// 1e-10 of the third derivative plus 1e-11 of the loss.
inline Array numeric_gradient(const std::function<double(const Array&)>& loss, Array x, double step = 1e-5) {
  Array gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    x[i] = value + step;
    const double above = loss(x);
    x[i] = value - step;
    gradient[i] = (above - loss(x)) / (2 * step);
    x[i] = value;
  }
  return gradient;
}

inline double dot(const Array& a, const Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace ms::reference
