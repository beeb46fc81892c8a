// What a layer with experts stores between its forward and its backward, besides the norm in front of it
// (FeedForwardActivations::normed).
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "train/ops/moe_router.h"

namespace ms::train {

struct MoeActivations {
  core::Tensor logits;          // fp32 [tokens, experts], of the router
  ops::Routing routing;         // [tokens, k]
  core::Tensor rows_of_slots;   // int32 [tokens, k]: the row of each choice; beyond the last one if it was dropped
  std::vector<int64_t> ends;    // of each expert's rows
  core::Tensor permuted;        // [rows, hidden]: what the experts read
  core::Tensor fc1;             // [rows, ffn], or [gate | up] of twice that
  core::Tensor product;         // [rows, ffn]: what linear_fc2 reads; undefined if it is recomputed
  core::Tensor shared_fc1;      // of shared experts, [seq, batch, ..]
  core::Tensor shared_product;  // the same; undefined if it is recomputed
  core::Tensor shared_output;   // with a gate: [seq, batch, hidden], which it multiplies
  core::Tensor shared_gate;     // with a gate: fp32 [seq, batch, 1], its value
};

}  // namespace ms::train
