// When the gradients of linear layers' weights are computed: at once, in the backward of the layer, or later, because
// nothing in the pipeline waits for them (zero bubble, Qi et al. 2024, arXiv 2401.10241). Until then their operands are
// in memory, or on a tier outside it (MindSpeed's --use-nanopipe-swap; mindspeed/core/weight_grad_store.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/layout/swap_plan.h"
#include "core/tensor.h"
#include "train/memory/tensor_swap.h"

namespace ms::train {

class GroupedLinear;
class Linear;
class ParameterObserver;
struct Parameter;

// Of one micro-batch and chunk.
class WeightGradients {
 public:
  // Until run(), gradients are kept instead of computed at once. swap: where to their operands leave; null: they stay
  // in memory. Not owned.
  void defer(TensorSwap* swap = nullptr);
  bool is_deferred() const { return deferred_; }
  // x and dy: the operands of the layer's backward_weight.
  void add(Linear& linear, core::Tensor x, core::Tensor dy);
  void add(GroupedLinear& linear, core::Tensor x, core::Tensor dy, std::span<const int64_t> ends);
  // With a swap, after each layer: settles, and what came since the last call begins to leave.
  void swap_out();
  // What was leaving has left memory.
  void settle();
  // run() is the next action but one: the operands that it reads first begin to return. Call settle() before.
  void prefetch() { prefetch(0); }
  // Computes what was kept, in the order in which it came. Of what is on the tier, a layer more is in memory.
  // observer: is told which layers' gradients are added to, and if are_final that they are final with it; may be null.
  void run(ParameterObserver* observer = nullptr, bool are_final = false);

 private:
  struct Operands {
    Linear* linear;          // null: of experts
    GroupedLinear* experts;  // null: of another linear layer
    core::Tensor x, dy;
    std::vector<int64_t> ends;  // of experts
    SwappedTensor swapped_x, swapped_dy;

    const Parameter& weight() const;
    void compute();
  };
  void prefetch(size_t first);  // as many from `first` on as a layer has
  bool deferred_ = false;
  TensorSwap* swap_ = nullptr;
  std::vector<Operands> kept_;
  size_t left_ = 0, leaving_ = 0;  // how many have left memory, or are leaving
};

}  // namespace ms::train
