// Attention of some rows of queries over keys that do not stand at the same positions: the step that ranks which share
// a sequence take for each run of positions they have. Otherwise as causal_attention (attention.h), which is this for a
// block of all rows at distance 0. It is range_attention (range_attention.h) of the same range in each sample.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "train/ops/attention.h"
#include "train/ops/context.h"

namespace ms::ops {

// Rows [first_row, first_row + rows) of the queries. distance: of the first one's position from that of the first key:
// query first_row + i sees key j if i + distance - window < j <= i + distance. At least 0.
struct QueryBlock {
  int64_t first_row = 0, rows = 0;
  int64_t distance = 0;
};

// q [s, b, nh, d], k [keys, b, ng, d], v [keys, b, ng, d_v]; fills the block's rows of out [s, b, nh, d_v] and of lse,
// fp32 [b, nh, s]. Dropout takes `distance` as the position of the first query, so that keys begin with those of
// position 0. params.document_ends must be empty.
void block_attention(Context& context, const core::TensorView& q, const core::TensorView& k, const core::TensorView& v,
                     const QueryBlock& block, const AttentionParams& params, const core::TensorView& out,
                     const core::TensorView& lse);

// What the block contributes to the gradients: overwrites its rows of dq, and dk and dv, of the shapes of k and v.
struct BlockGradients {
  core::TensorView dq, dk, dv;
  bool adds_to_keys = false;  // adds to dk and dv instead
};
void block_attention_backward(Context& context, const core::TensorView& dout, const core::TensorView& q,
                              const core::TensorView& k, const core::TensorView& v, const core::TensorView& out,
                              const core::TensorView& lse, const QueryBlock& block, const AttentionParams& params,
                              const BlockGradients& gradients);

}  // namespace ms::ops
