// The MLP of one layer: norm, column-parallel fc1, activation, row-parallel fc2, norm after it (optional)
// (megatron/core/transformer/mlp.py). If gated, fc1 is [gate; up] and the activation is act(gate) * up.
#pragma once

#include <optional>
#include <string>

#include "core/layout/recompute_plan.h"
#include "train/memory/activations.h"
#include "train/model/linear.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/model/tensor_recorder.h"
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
  // dy: gradient of the contribution, left as it is; dresidual: of the residual stream behind it, added to the result.
  // What has been read of `saved` is given back as it goes. Gradients of the linear layers' weights go to `weights`.
  core::Tensor backward(core::Tensor& dy, MlpActivations& saved, const core::TensorView& dresidual,
                        WeightGradients& weights);

 private:
  TensorRecorder::Split fc1_columns() const;
  core::Tensor activated(const core::TensorView& fc1);
  core::Tensor activated_backward(const core::TensorView& dy, core::Tensor fc1);

  RankState& state_;
  std::string name_;  // decoder.layers.N.mlp.
  Norm norm_;
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
  std::optional<Norm> post_norm_;
  ops::Activation activation_;
  bool gated_;
  bool fused_;  // SwiGLU
  layout::RecomputedOutputs recomputed_;
};

}  // namespace ms::train
