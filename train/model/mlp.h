// The MLP of one layer: norm, column-parallel fc1, activation, row-parallel fc2, norm after it (optional)
// (megatron/core/transformer/mlp.py). If gated, fc1 is [gate; up] and the activation is act(gate) * up.
#pragma once

#include <optional>

#include "core/layout/recompute_plan.h"
#include "train/memory/activations.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/ops/activation.h"
#include "train/rank_state.h"

namespace ms::train {

class Mlp {
 public:
  // layer: global index.
  Mlp(RankState& state, ParameterStore& parameters, int64_t layer, const layout::RecomputedOutputs& recomputed);

  // saved.input [seq', batch, hidden] -> the block's contribution to the residual stream, plus `residual` unless that
  // is null. Fills the rest of `saved`.
  core::Tensor forward(MlpActivations& saved, const core::TensorView* residual);
  // Fills the rest of `saved` as forward does, for a backward that follows at once: without the product of linear_fc2
  // where only its result has a use for it, and without what backward makes where it reads it.
  void refill(MlpActivations& saved);
  // dy: gradient of the contribution; dresidual: of the residual stream behind it, added to the result. What has been
  // read of `saved` is given back as it goes.
  core::Tensor backward(const core::TensorView& dy, MlpActivations& saved, const core::TensorView& dresidual);

 private:
  void fill_fc1(MlpActivations& saved);
  core::Tensor activated(const core::TensorView& fc1);
  core::Tensor backward_fc2(const core::TensorView& dy, MlpActivations& saved);
  core::Tensor backward_fc1(core::Tensor dfc1, MlpActivations& saved);

  RankState& state_;
  Norm norm_;
  Parameter& fc1_;
  Parameter* fc1_bias_;
  Parameter& fc2_;
  Parameter* fc2_bias_;
  std::optional<Norm> post_norm_;
  ops::Activation activation_;
  bool gated_;
  layout::RecomputedOutputs recomputed_;
};

}  // namespace ms::train
