// Element-wise reductions of several inputs, as collectives need them.
#pragma once

#include <cstdint>

namespace ms::kernels {

enum class Reduction : uint8_t { kSum, kMean, kMax, kMin };

// out[i] = inputs[0][i] op inputs[1][i] op .., in this order, so that a result does not depend on the instruction set.
// T: float, double, int32_t, int64_t; bf16 and fp16, which are added in fp32 and rounded once. kMean divides the sum by
// num_inputs, of integers without a remainder. num_inputs is at least 1; out may be one of the inputs.
template <class T>
void reduce(Reduction op, const T* const* inputs, int num_inputs, int64_t n, T* out);

}  // namespace ms::kernels
