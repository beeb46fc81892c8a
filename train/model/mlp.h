// The MLP of one layer: norm, column-parallel fc1, activation, row-parallel fc2, norm after it (optional)
// (megatron/core/transformer/mlp.py). If gated, fc1 is [gate; up] and the activation is act(gate) * up.
#pragma once

#include <optional>
#include <string>

#include "train/memory/activations.h"
#include "train/model/feed_forward.h"
#include "train/model/linear.h"
#include "train/model/mlp_activation.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/model/tensor_recorder.h"
#include "train/rank_state.h"

namespace ms::train {

class Mlp : public FeedForward {
 public:
  // layer: global index.
  Mlp(RankState& state, ParameterStore& parameters, int64_t layer);

  PartialSum start_forward(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                           const core::TensorView* residual, const SequenceContext& sequence) override;
  core::Tensor finish_forward(PartialSum sum, FeedForwardActivations& saved, const core::TensorView* residual) override;
  // Without the product of linear_fc2 where only the contribution needs it, and without the activation's result.
  void refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
              const SequenceContext& sequence) override;
  PartialSum start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                            const SequenceContext& sequence, WeightGradients& weights) override;
  core::Tensor finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                               const core::TensorView& dresidual, const SequenceContext& sequence,
                               WeightGradients& weights) override;

 private:
  TensorRecorder::Split fc1_columns() const;

  RankState& state_;
  std::string name_;  // decoder.layers.N.mlp.
  Norm norm_;
  ColumnParallelLinear fc1_;
  RowParallelLinear fc2_;
  std::optional<Norm> post_norm_;
  MlpActivation activation_;
};

}  // namespace ms::train
