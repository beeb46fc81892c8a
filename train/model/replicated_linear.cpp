#include "train/model/replicated_linear.h"

#include <utility>

namespace ms::train {

ReplicatedLinear::ReplicatedLinear(RankState& state, ParameterStore& parameters, const std::string& name)
    : Linear(state, parameters, name) {}

core::Tensor ReplicatedLinear::backward(core::Tensor dy, core::Tensor x, WeightGradients& weights) {
  weights.add(*this, std::move(x), dy.share());
  return precision_.backward_input(dy);
}

void ReplicatedLinear::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  if (weight_.trains()) precision_.backward_weight(x, dy);
}

}  // namespace ms::train
