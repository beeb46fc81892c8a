// The experts of a layer: MLPs of the same shape, each for rows of its own.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "core/layout/saved_slots.h"
#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/model/grouped_linear.h"
#include "train/model/mlp_activation.h"
#include "train/model/weight_gradients.h"
#include "train/rank_state.h"

namespace ms::train {

class Experts {
 public:
  // name: prefix of the parameters' names, "decoder.layers.N.mlp.experts.local_experts.".
  Experts(RankState& state, ParameterStore& parameters, const std::string& name);

  // saved.permuted -> [rows, hidden]. Fills saved.fc1 and saved.product, but for what `slots` drop, saved.permuted too.
  core::Tensor forward(MoeActivations& saved, const layout::LayerSlots& slots);
  // As far as backward reads it: saved.fc1.
  void refill(MoeActivations& saved);

  struct Gradients {
    core::Tensor permuted;  // of saved.permuted
    core::Tensor weights;   // fp32 [rows]: of what multiplies each row of the result
  };
  // saved.product and saved.fc1 are computed again if they are undefined. bring: is called once before saved.permuted
  // is read, if that is undefined, and fills it. dy [rows, hidden]: the gradient of the rows of the result, before they
  // are multiplied by `of_rows`, fp32 [rows]. Gives back what it has read of saved. The gradients of the weights go to
  // `weights` as soon as each operand is there. later: is filled instead, for backward_weights(), which the caller
  // calls; null: nothing waits.
  Gradients backward(core::Tensor dy, const core::TensorView& of_rows, MoeActivations& saved,
                     core::FunctionRef<void()> bring, WeightGradients& weights, ExpertOperands* later = nullptr);
  void backward_weights(ExpertOperands operands, MoeActivations& saved, core::FunctionRef<void()> bring,
                        WeightGradients& weights);

 private:
  void backward_fc2_weights(ExpertOperands& operands, const MoeActivations& saved, WeightGradients& weights);
  void backward_fc1_weights(ExpertOperands& operands, MoeActivations& saved, core::FunctionRef<void()> bring,
                            WeightGradients& weights);

  RankState& state_;
  GroupedLinear fc1_, fc2_;
  MlpActivation activation_;
};

}  // namespace ms::train
