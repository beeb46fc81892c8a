// Gathers, weights and sums rows: the kernels that route tokens to experts and back (train/ops/token_permute.h). T:
// float, bf16 or fp16; arithmetic in fp32.
#pragma once

#include <cstdint>

#include "kernels/stores.h"

namespace ms::kernels {

// Copies `bytes` bytes from row to target, which must not overlap.
void copy_row(const void* row, int64_t bytes, void* target, Stores stores = Stores::kCached);

// Copies one of many pieces past the caches. Other threads see it after this thread has called store_fence(); a fence
// per piece would wait for memory each time.
void copy_piece(const void* piece, int64_t bytes, void* target);
void store_fence();

// y[i] = sum over r of weights[r] * rows[r][i] for i in [0, h), in the order of r, rounded once; 0 when count is 0.
// rows: `count` pointers to h elements, none overlapping y. weights: `count` factors; null: all 1. ahead: `count` rows
// of the next sum, to prefetch; null: none. With kNonTemporal, other threads see y after store_fence().
template <class T>
void weighted_row_sum(const T* const* rows, const float* weights, int64_t count, int64_t h, T* y,
                      Stores stores = Stores::kCached, const T* const* ahead = nullptr);

// Backward for one row of that sum: drow[i] = weight * dy[i]; returns the weight's gradient, sum of dy[i] * row[i].
template <class T>
float weighted_row_sum_backward(const T* dy, const T* row, float weight, int64_t h, T* drow,
                                Stores stores = Stores::kCached);

}  // namespace ms::kernels
