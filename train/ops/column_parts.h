// A tensor whose columns are divided over ranks, whole and in parts: what a column-parallel layer gives, where the next
// one reads all of it (megatron/core/tensor_parallel/mappings.py, gather_from_tensor_model_parallel_region).
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// parts [n, s, b, w], of n ranks: positions `first` to `first + count` of them, side by side: [count, b, n * w].
core::Tensor join_parts(Context& context, const core::TensorView& parts, int64_t first, int64_t count);
// x [s, b, n * w] -> the part of a rank, [s, b, w]. n: their number.
core::Tensor part_of_columns(Context& context, const core::TensorView& x, int64_t part, int64_t n);

}  // namespace ms::ops
