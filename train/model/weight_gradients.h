// When the gradients of linear layers' weights are computed: at once, in the backward of the layer, or later, because
// nothing in the pipeline waits for them (zero bubble, Qi et al. 2024, arXiv 2401.10241).
#pragma once

#include <vector>

#include "core/tensor.h"

namespace ms::train {

class Linear;

// Of one micro-batch and chunk.
class WeightGradients {
 public:
  // Until run(), gradients are kept instead of computed at once: their operands stay in memory.
  void defer() { deferred_ = true; }
  // x and dy: the operands of the layer's backward_weight.
  void add(Linear& linear, core::Tensor x, core::Tensor dy);
  // Computes what was kept, in the order in which it came.
  void run();

 private:
  struct Operands {
    Linear* linear;
    core::Tensor x, dy;
  };
  bool deferred_ = false;
  std::vector<Operands> kept_;
};

}  // namespace ms::train
