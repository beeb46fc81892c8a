// The gated MLP of one layer: norm, column-parallel fc1 [gate; up], silu(gate) * up, row-parallel fc2
// (megatron/core/transformer/mlp.py).
#pragma once

#include <string>

#include "train/memory/activations.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

class Mlp {
 public:
  Mlp(RankState& state, ParameterStore& parameters, const std::string& prefix);

  // saved.input [seq', batch, hidden] -> the block's contribution to the residual stream. Fills the rest of `saved`.
  core::Tensor forward(MlpActivations& saved);
  core::Tensor backward(const core::TensorView& dy, const MlpActivations& saved, const core::TensorView& dresidual);

 private:
  RankState& state_;
  Parameter& norm_;
  Parameter& fc1_;
  Parameter& fc2_;
};

}  // namespace ms::train
