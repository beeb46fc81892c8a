// What the block of experts of a layer allocates and frees, in the order of train/model/moe_layer.cpp, as LayerReplay
// has it of the other blocks (layer_replay.h). All tokens' choices are kept (no capacity). On one rank the rows of all
// experts together are tokens x k, whichever experts they are of; on several, all experts are taken to have the same.
#pragma once

#include <cstdint>

#include "core/layout/formulas/expert_traffic.h"
#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

// Sizes of the tensors of the block, bytes of one micro-batch.
struct ExpertBytes {
  explicit ExpertBytes(const TrainingStep& step);

  int64_t hidden = 0, statistics = 0;          // of the norm in front; with sequence parallelism, of a rank's part
  int64_t logits = 0, slots = 0;               // slots: a number for each choice
  int64_t all_hidden = 0, all_slots = 0;       // of all ranks, where each has all tokens (allgather dispatcher)
  int64_t routing = 0;                         // what is kept of the choices
  int64_t sent = 0;                            // rows of this rank's tokens, [rows, hidden]
  int64_t permuted = 0, fc1 = 0, product = 0;  // of the rows of the experts here
  int64_t weights = 0;                         // a number for each of these
  int64_t shared_fc1 = 0, shared_product = 0;  // of shared experts; of the whole sequence
  int64_t gathered = 0;                        // what a gather of the sequence takes; 0 without sequence parallelism
  int64_t shared_gate = 0;                     // with a gate: what it multiplies, and itself
};

class ExpertReplay {
 public:
  ExpertReplay(const TrainingStep& step, HeldBytes& held) : bytes_(step), exchange_(step), held_(held) {}

  // MoeLayer's halves: start() leaves its result, of one hidden state, held.
  void start(const LayerSlots& slots);
  void refill();
  // The gradient of the output is held. slots: of a layer that was refilled, LayerSlots::refilled.
  void start_backward(const LayerSlots& slots);
  void finish_backward();

 private:
  void route();
  void dispatch();
  void combine();
  void to_experts(int64_t sent, int64_t of_experts);
  void from_experts(int64_t sent, int64_t of_experts);
  void dispatch_gradient();
  void combine_gradient();
  void hold_sequence();
  void fill_fc1();
  void shared_backward(bool has_products);

  ExpertBytes bytes_;
  TokenExchange exchange_;
  HeldBytes& held_;
};

}  // namespace ms::layout
