// The activation between the two linear layers of an MLP, of an expert, and of shared experts, as the model has it.
#pragma once

#include "core/tensor.h"
#include "train/ops/activation.h"
#include "train/rank_state.h"

namespace ms::train {

class MlpActivation {
 public:
  explicit MlpActivation(RankState& state);

  // fc1 [.., f], or gated [gate | up] of twice that -> [.., f]: act(x), or act(gate) * up.
  core::Tensor forward(const core::TensorView& fc1);
  // dy -> the gradient of fc1, in its memory.
  core::Tensor backward(const core::TensorView& dy, core::Tensor fc1);
  bool gated() const { return gated_; }

 private:
  RankState& state_;
  ops::Activation activation_;
  bool gated_;
  bool fused_;  // SwiGLU
};

}  // namespace ms::train
