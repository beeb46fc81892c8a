// The experts of a layer: MLPs of the same shape, each for rows of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/model/grouped_linear.h"
#include "train/model/mlp_activation.h"
#include "train/rank_state.h"

namespace ms::train {

class Experts {
 public:
  // name: prefix of the parameters' names, "decoder.layers.N.mlp.experts.local_experts.".
  Experts(RankState& state, ParameterStore& parameters, const std::string& name);

  // saved.permuted -> [rows, hidden]. Fills saved.fc1 and saved.product.
  core::Tensor forward(MoeActivations& saved);
  // As far as backward reads it: saved.fc1.
  void refill(MoeActivations& saved);

  struct Gradients {
    core::Tensor permuted;  // of saved.permuted
    core::Tensor weights;   // fp32 [rows]: of what multiplies each row of the result
  };
  // What the gradients of the weights read, until they are computed.
  struct WeightOperands {
    core::Tensor product, dy, permuted, dfc1;
  };
  // saved.product is computed again if it is undefined. dy [rows, hidden]: the gradient of the rows of the result,
  // before they are multiplied by `weights`, fp32 [rows]. Gives back what it has read of saved. later: is filled for
  // backward_weights(), which the caller calls; null: it is called here, as soon as each operand is there.
  Gradients backward(core::Tensor dy, const core::TensorView& weights, MoeActivations& saved,
                     WeightOperands* later = nullptr);
  // Adds to the gradients of the weights.
  void backward_weights(WeightOperands operands, std::span<const int64_t> ends);

 private:
  void backward_fc2_weights(WeightOperands& operands, std::span<const int64_t> ends);

  RankState& state_;
  GroupedLinear fc1_, fc2_;
  MlpActivation activation_;
};

}  // namespace ms::train
