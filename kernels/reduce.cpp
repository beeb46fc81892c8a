#include "kernels/reduce.h"

#include <type_traits>

#include "kernels/bf16.h"
#include "kernels/fp16.h"

#define MS_KERNEL_BODY "kernels/impl/reduce.inl"
#include "kernels/impl/foreach_isa.h"

namespace ms::kernels {
namespace {

template <class T>
void sum_vectors(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  MS_DISPATCH(sum_inputs(inputs, num_inputs, n, out));
}

template <class T>
void average_vectors(const T* const* inputs, int num_inputs, int64_t n, T* out) {
  MS_DISPATCH(average_inputs(inputs, num_inputs, n, out));
}

template <class T, class Combine>
void reduce_in_order(const T* const* inputs, int num_inputs, int64_t n, T* out, const Combine& combine) {
  for (int64_t i = 0; i < n; ++i) {
    T value = inputs[0][i];
    for (int r = 1; r < num_inputs; ++r) value = combine(value, inputs[r][i]);
    out[i] = value;
  }
}

template <class T>
constexpr bool kIsVector = std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

// Comparable: 16-bit types by their value in fp32.
template <class T>
auto value_of(T x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, fp16>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

}  // namespace

template <class T>
void reduce(Reduction op, const T* const* inputs, int num_inputs, int64_t n, T* out) {
  switch (op) {
    case Reduction::kSum:
      if constexpr (kIsVector<T>) {
        return sum_vectors(inputs, num_inputs, n, out);
      } else {
        return reduce_in_order(inputs, num_inputs, n, out, [](T a, T b) { return a + b; });
      }
    case Reduction::kMean:
      if constexpr (kIsVector<T>) {
        return average_vectors(inputs, num_inputs, n, out);
      } else {
        reduce(Reduction::kSum, inputs, num_inputs, n, out);
        for (int64_t i = 0; i < n; ++i) out[i] /= static_cast<T>(num_inputs);
        return;
      }
    case Reduction::kMax:
      return reduce_in_order(inputs, num_inputs, n, out, [](T a, T b) { return value_of(a) < value_of(b) ? b : a; });
    case Reduction::kMin:
      return reduce_in_order(inputs, num_inputs, n, out, [](T a, T b) { return value_of(b) < value_of(a) ? b : a; });
  }
}

template void reduce(Reduction, const float* const*, int, int64_t, float*);
template void reduce(Reduction, const double* const*, int, int64_t, double*);
template void reduce(Reduction, const bf16* const*, int, int64_t, bf16*);
template void reduce(Reduction, const fp16* const*, int, int64_t, fp16*);
template void reduce(Reduction, const int32_t* const*, int, int64_t, int32_t*);
template void reduce(Reduction, const int64_t* const*, int, int64_t, int64_t*);

}  // namespace ms::kernels
