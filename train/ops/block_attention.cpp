#include "train/ops/block_attention.h"

#include <vector>

#include "core/error.h"
#include "train/ops/range_attention.h"

namespace ms::ops {
namespace {

using core::TensorView;

// The block in each sample.
std::vector<AttentionRange> ranges_of(const QueryBlock& block, const TensorView& k, const AttentionParams& params) {
  MS_CHECK(params.document_ends.empty(), "block_attention: documents have ranges of their own");
  std::vector<AttentionRange> ranges(static_cast<size_t>(k.dim(1)));
  for (size_t sample = 0; sample < ranges.size(); ++sample) {
    ranges[sample] = {.sample = static_cast<int64_t>(sample),
                      .first_row = block.first_row,
                      .rows = block.rows,
                      .keys = k.dim(0),
                      .distance = block.distance,
                      .position = block.distance};
  }
  return ranges;
}

}  // namespace

void block_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v,
                     const QueryBlock& block, const AttentionParams& params, const TensorView& out,
                     const TensorView& lse) {
  range_attention(context, q, k, v, {block.first_row, block.rows}, ranges_of(block, k, params), params, out, lse);
}

void block_attention_backward(Context& context, const TensorView& dout, const TensorView& q, const TensorView& k,
                              const TensorView& v, const TensorView& out, const TensorView& lse,
                              const QueryBlock& block, const AttentionParams& params, const BlockGradients& gradients) {
  range_attention_backward(context, dout, q, k, v, out, lse, {block.first_row, block.rows}, ranges_of(block, k, params),
                           params, gradients);
}

}  // namespace ms::ops
