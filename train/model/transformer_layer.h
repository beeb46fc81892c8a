// One decoder layer: x + attention(norm(x)), then + mlp(norm(.)) (megatron/core/transformer/transformer_layer.py).
#pragma once

#include "train/model/attention.h"
#include "train/model/mlp.h"

namespace ms::train {

class TransformerLayer {
 public:
  // layer: global index.
  TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable& rope, int64_t layer);

  // saved.input [seq', batch, hidden] -> output of the same shape; `saved` is complete afterwards.
  core::Tensor forward(LayerActivations& saved);
  // dy -> gradient of saved.input. `saved` must be complete; it is given back to the arena.
  core::Tensor backward(const core::TensorView& dy, LayerActivations& saved);

 private:
  RankState& state_;
  Attention attention_;
  Mlp mlp_;
};

}  // namespace ms::train
