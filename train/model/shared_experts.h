// Experts that every token uses, as one MLP beside those that the router chooses from, with a gate or without
// (megatron/core/transformer/moe/shared_experts.py; the gate: Qwen2-MoE).
#pragma once

#include <string>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/model/linear.h"
#include "train/model/mlp_activation.h"
#include "train/rank_state.h"

namespace ms::train {

class SharedExperts {
 public:
  // name: prefix of the parameters' names, "decoder.layers.N.mlp.shared_experts.".
  SharedExperts(RankState& state, ParameterStore& parameters, const std::string& name);

  // x [seq, batch, hidden] -> what they give for x. Fills saved.shared_*.
  core::Tensor forward(const core::TensorView& x, MoeActivations& saved) {
    start_forward(x, saved);
    return finish_forward(x, saved);
  }
  // The same in two halves, each of which may be computed beside an exchange of the other experts' rows: up to the
  // activation, and from there on.
  void start_forward(const core::TensorView& x, MoeActivations& saved);
  core::Tensor finish_forward(const core::TensorView& x, MoeActivations& saved);
  // As far as backward reads it.
  void refill(const core::TensorView& x, MoeActivations& saved);
  // Without what backward reads, which it then computes again.
  static void drop(MoeActivations& saved);
  // What is undefined of saved.shared_* is computed again. dy: the gradient of the result, left as it is -> the
  // gradient of x. Gives back saved.shared_*.
  core::Tensor backward(core::Tensor& dy, core::Tensor x, MoeActivations& saved, WeightGradients& weights);

 private:
  void fill_gate(const core::TensorView& x, MoeActivations& saved);

  RankState& state_;
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
  Parameter* gate_;  // [1, hidden]; null: none
  MlpActivation activation_;
};

}  // namespace ms::train
