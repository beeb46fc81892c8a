// What leaves memory in a run (train/memory/activation_swap.h, train/model/weight_gradients.h,
// train/memory/state_memory.h), as its flags have it: all of it to one file.
#pragma once

#include <memory>

#include "train/memory/activation_swap.h"
#include "train/model/gpt_stage.h"
#include "train/optim/optimizer.h"
#include "train/rank_state.h"

namespace ms::train {

class RunSwap {
 public:
  // With the space that a step of --global-batch-size needs reserved. Warns if the tier is in memory. Throws kNotFound
  // and kIo, naming --swap-dir. Null if nothing is to leave memory.
  static std::unique_ptr<RunSwap> open(RankState& state);

  // What is to leave memory does so from now on: the stage's tensors, the optimizer's state. This object must outlive
  // both.
  void serve(GptStage& stage) {
    stage.set_swap(plan_.activations() ? &activations_ : nullptr, plan_.operands ? &tensors_ : nullptr);
  }
  void serve(Optimizer& optimizer) {
    if (plan_.optimizer()) optimizer.swap_state(tier(), plan_.optimizer_times);
  }
  SwapTier& tier() { return tensors_.tier(); }
  // Throws what the tier has failed with, and what to do about it.
  void check() const;

 private:
  RunSwap(const layout::SwapPlan& plan, RankState& state, const std::string& folder, int64_t reserve_bytes)
      : plan_(plan), tensors_(plan.min_bytes, state.ops.arena, folder, reserve_bytes, state.ops.recorder) {}

  layout::SwapPlan plan_;
  TensorSwap tensors_;
  ActivationSwap activations_{tensors_};
};

}  // namespace ms::train
