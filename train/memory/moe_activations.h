// What a layer with experts stores between its forward and its backward, besides the norm in front of it
// (FeedForwardActivations::normed).
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "train/ops/moe_router.h"
#include "train/ops/row_blocks.h"

namespace ms::train {

// How the rows of experts on several ranks have travelled.
struct RowExchange {
  std::vector<int64_t> sent, received;  // rows to and from each rank of the ep group
  std::vector<int64_t> shared;          // rows of each etp rank, if there are several
  std::vector<ops::RowBlock> blocks;    // from the order of the ranks to that of the experts
};

struct MoeActivations {
  core::Tensor logits;         // fp32 [tokens, experts], of the router
  ops::Routing routing;        // [tokens, k]
  std::vector<int64_t> sent;   // tokens of this rank to each expert of the layer
  int64_t busiest = 0;         // tokens of the busiest expert, of all ranks that exchange rows
  core::Tensor rows_of_slots;  // int32 [tokens, k]: the row of each choice; beyond the last one if it was dropped
  RowExchange exchange;        // alltoall dispatcher
  core::Tensor all_experts;   // allgather dispatcher: int32 [n, tokens, k], this rank's expert of each choice, if it is
  core::Tensor all_probs;     // fp32 of the same shape: the weights
  std::vector<int64_t> ends;  // of the rows of each expert of this rank
  core::Tensor permuted;      // [rows, hidden]: what the experts read
  core::Tensor fc1;           // [rows, ffn], or [gate | up] of twice that
  core::Tensor product;       // [rows, ffn]: what linear_fc2 reads; undefined if it is recomputed
  core::Tensor shared_fc1;    // of shared experts, [seq, batch, ..]
  core::Tensor shared_product;  // the same; undefined if it is recomputed
  core::Tensor shared_output;   // with a gate: [seq, batch, hidden], which it multiplies
  core::Tensor shared_gate;     // with a gate: fp32 [seq, batch, 1], its value

  int64_t rows() const { return ends.empty() ? 0 : ends.back(); }
};

}  // namespace ms::train
