// What the block of experts of a layer allocates and frees, in the order of train/model/moe_layer.cpp, as LayerReplay
// has it of the other blocks (layer_replay.h). All tokens' choices are kept (no capacity), whichever experts they are
// of: the rows of all experts together are tokens x k.
#pragma once

#include <cstdint>

#include "core/layout/formulas/layer_replay.h"

namespace ms::layout {

// Sizes of the tensors of the block, bytes of one micro-batch.
struct ExpertBytes {
  explicit ExpertBytes(const TrainingStep& step);

  int64_t hidden = 0, statistics = 0;          // of the norm in front
  int64_t logits = 0, slots = 0;               // slots: a number for each choice
  int64_t permuted = 0, fc1 = 0, product = 0;  // of all experts' rows
  int64_t shared_fc1 = 0, shared_product = 0;  // of shared experts
  int64_t shared_gate = 0;                     // with a gate: what it multiplies, and itself
};

class ExpertReplay {
 public:
  ExpertReplay(const TrainingStep& step, HeldBytes& held) : bytes_(step), held_(held) {}

  // MoeLayer's halves: start() leaves its result, of one hidden state, held.
  void start(const LayerSlots& slots);
  void refill();
  // The gradient of the output is held. slots: of a layer that was refilled, LayerSlots::refilled.
  void start_backward(const LayerSlots& slots);
  void finish_backward();

 private:
  void route();
  void fill_fc1();
  void shared_backward(bool has_products);

  ExpertBytes bytes_;
  HeldBytes& held_;
};

}  // namespace ms::layout
