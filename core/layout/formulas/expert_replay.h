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
  int64_t whole_logits = 0, whole_slots = 0;   // of all parts of a micro-batch, where the choice looks at them; else 0
  int64_t tp_logits = 0;                       // of TP's parts, which CP gathers then
  int64_t destinations = 0;                    // with a capacity, where samples are padded or experts move
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
  ExpertReplay(const TrainingStep& step, HeldBytes& held)
      : bytes_(step), exchange_(step), overlap_(step.expert_overlap), post_norm_(step.model.post_norm), held_(held) {}

  // MoeLayer's forward in its sub-steps; finish() leaves the result, of one hidden state, held. start(): all.
  void start(const LayerSlots& slots);
  void dispatch();
  void run_experts(const LayerSlots& slots);
  void combine();
  void finish(const LayerSlots& slots);
  void refill(const LayerSlots& slots);

  // deferred: gradients of weights wait; what they read stays held.
  void begin_backward(bool deferred) { deferred_ = deferred, operands_ = 0; }
  int64_t operands() const { return operands_; }  // that the backward has left
  // Its backward, likewise: the gradient of the output is held. slots: of a layer that was refilled,
  // LayerSlots::refilled.
  void backward(const LayerSlots& slots);
  void combine_backward(const LayerSlots& slots);
  void run_experts_backward(const LayerSlots& slots);
  void dispatch_backward(const LayerSlots& slots);
  void finish_backward(const LayerSlots& slots);

 private:
  // Halves of an exchange of a tensor, around what is computed beside it: the result of the first is two tensors.
  void post_to_experts(int64_t sent, int64_t of_experts);
  void take_at_experts(int64_t sent, int64_t of_experts);
  void post_from_experts(int64_t sent, int64_t of_experts);
  void take_from_experts(int64_t sent, int64_t of_experts);
  void within_block();
  int64_t of_group(int64_t bytes) const { return bytes / exchange_.groups; }  // of experts

  void start_combine_backward(const LayerSlots& slots);
  void start_route();
  void finish_dispatch();
  void start_combine();
  void finish_combine();
  void start_dispatch_gradient();
  void finish_dispatch_gradient();
  void start_again();
  void finish_again();
  void drop_operand(int64_t bytes);
  void drop_fc2_operands() { drop_operand(of_group(bytes_.product + bytes_.permuted)); }
  void drop_fc1_operands(const LayerSlots& slots);
  void send_gradient_back(const LayerSlots& slots);
  void start_combine_gradient();
  void finish_combine_gradient();

  void hold_sequence();
  bool overlaps_shared() const { return overlap_.shared_experts && bytes_.shared_fc1 > 0; }
  void start_shared();
  void finish_shared();
  void refill_shared();
  void refill_experts();
  void shared_backward(const LayerSlots& slots);

  ExpertBytes bytes_;
  TokenExchange exchange_;
  ExpertOverlap overlap_;
  bool post_norm_;
  HeldBytes& held_;
  bool deferred_ = false;
  int64_t operands_ = 0;
};

}  // namespace ms::layout
