// Dropout (Srivastava et al. 2014) whose mask depends on which element it is, not on where it is computed.
//
// The mask of column c of row r of sample s under `key` is one word of Philox(counter = (c / 4, r, s), key). Any rank,
// thread or order gives the same bits, so recomputation does not need to store a mask or a generator state.
#pragma once

#include <cstdint>

namespace ms::kernels {

struct Dropout {
  float probability = 0;  // in [0, 1); 0: no dropout
  uint64_t key = 0;       // derived from the run's seed and the place in the model
};

// factors[i] = 0 with `probability`, else 1 / (1 - probability), for columns [first_column, first_column + n).
// first_column must be a multiple of 4, row below 2^32, columns below 2^34.
void dropout_factors(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n,
                     float* factors);

// x[i] *= factor of column first_column + i. T: float, bf16 or fp16.
template <class T>
void dropout_row(const Dropout& dropout, int64_t sample, int64_t row, int64_t first_column, int64_t n, T* x);

}  // namespace ms::kernels
