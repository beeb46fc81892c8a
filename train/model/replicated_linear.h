// A linear layer whose weight every tensor-parallel rank has whole (Transformer Engine's parallel_mode "duplicated"):
// latent attention's down projections. With sequence parallelism a rank computes its part of the sequence, and has a
// part of the weight's gradient; else all ranks compute the same.
#pragma once

#include <string>

#include "train/model/linear.h"

namespace ms::train {

class ReplicatedLinear : public Linear {
 public:
  // Parameter NAME.weight.
  ReplicatedLinear(RankState& state, ParameterStore& parameters, const std::string& name);

  // x [seq', batch, in] -> [seq', batch, out].
  core::Tensor forward(const core::TensorView& x) { return precision_.forward(x, {}); }
  // dy [seq', batch, out] -> the gradient of x. The weight's gradient goes to `weights`.
  core::Tensor backward(core::Tensor dy, core::Tensor x, WeightGradients& weights);
  void backward_weight(const core::TensorView& x, const core::TensorView& dy) override;
};

}  // namespace ms::train
