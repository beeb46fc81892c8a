// Attention of ranks that share sequences: ranges of queries, of each sample or document one, that see ranges of keys
// at other positions. Otherwise as causal_attention (attention.h), which is this for all rows and keys of each sample
// at distance 0.
#pragma once

#include <cstdint>
#include <span>

#include "core/tensor.h"
#include "train/ops/attention.h"
#include "train/ops/context.h"

namespace ms::ops {

// Of a sample: query first_row + i sees key first_key + j if i + distance - window < j <= i + distance, or j < prefix.
// position: of the first query, for dropout; column: how many keys of its document are before the first one here, for
// the same. runs: what they see instead, of these rows and keys; distance, position, column and prefix are not read.
struct AttentionRange {
  int64_t sample = 0;
  int64_t first_row = 0, rows = 0;
  int64_t first_key = 0, keys = 0;
  int64_t distance = 0, position = 0, column = 0;
  int64_t prefix = 0;              // of these keys; params.prefix is not read
  kernels::VisibleRuns runs = {};  // params.runs is not read
};

struct RowSpan {
  int64_t first = 0, count = 0;
};

// q [s, b, nh, d], k [keys, b, ng, d], v [keys, b, ng, d_v]; fills the rows [first_row, first_row + rows) of out [s, b,
// nh, d_v] and of lse, fp32 [b, nh, s]; those of no range with 0 and -inf, with which merge_attention adds nothing.
// ranges: within these rows; those of a sample have no row and no key in common. params.document_ends is not read.
// Time is that of the visible scores.
void range_attention(Context& context, const core::TensorView& q, const core::TensorView& k, const core::TensorView& v,
                     RowSpan rows, std::span<const AttentionRange> ranges, const AttentionParams& params,
                     const core::TensorView& out, const core::TensorView& lse);

// What the ranges contribute to the gradients: overwrites these rows of dq, and dk and dv, unless it adds to these; 0
// where there is no range.
struct RangeGradients {
  core::TensorView dq, dk, dv;
  bool adds_to_keys = false;  // adds to dk and dv instead
};
void range_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                              const core::TensorView& k, const core::TensorView& v, const core::TensorView& out,
                              const core::TensorView& lse, RowSpan rows, std::span<const AttentionRange> ranges,
                              const AttentionParams& params, const RangeGradients& gradients);

}  // namespace ms::ops
