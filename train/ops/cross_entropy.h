// The local parts of vocabulary-parallel cross entropy (Megatron, Shoeybi et al. 2019, section 3). Between them the
// caller reduces over the tensor-parallel group: the max of row_max, the sums of row_sums.
//
//   loss[i] = log(sum_exp[i]) + max[i] - target_logit[i]
//
// logits: fp32 [n, columns], the slice of ids [first_id, first_id + valid_columns). Columns from valid_columns on are
// padding of the vocabulary: they are in no sum and have gradient 0. All spans have n elements.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// max[i] = largest valid logit of row i; -inf if valid_columns is 0.
void row_max(Context& context, const core::TensorView& logits, int64_t valid_columns, std::span<float> max);

// sum_exp[i] = sum of exp(logit - max[i]); target_logit[i] = logit of labels[i], 0 if the label is not in this slice.
void row_sums(Context& context, const core::TensorView& logits, int64_t valid_columns, std::span<const float> max,
              std::span<const int32_t> labels, int64_t first_id, std::span<float> sum_exp,
              std::span<float> target_logit);

// In place: logits become dlogits = row_scale[i] * (exp(logit - max[i]) / sum_exp[i] - (column is labels[i])).
// max, sum_exp: over the whole vocabulary. row_scale: loss mask divided by its normaliser, times the loss scale.
void cross_entropy_backward(Context& context, const core::TensorView& logits, int64_t valid_columns,
                            std::span<const float> max, std::span<const float> sum_exp, std::span<const int32_t> labels,
                            int64_t first_id, std::span<const float> row_scale);

}  // namespace ms::ops
