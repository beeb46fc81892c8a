// Self-attention of one layer: norm, column-parallel QKV, (per-head norm), rotation, causal attention, row-parallel
// projection (megatron/core/transformer/attention.py). With TP each rank has heads / tp query heads and groups / tp
// key/value heads.
#pragma once

#include <string>

#include "train/memory/activations.h"
#include "train/model/parameters.h"
#include "train/ops/rope.h"
#include "train/rank_state.h"

namespace ms::train {

class Attention {
 public:
  // prefix: "decoder.layers.N."
  Attention(RankState& state, ParameterStore& parameters, const ops::RopeTable& rope, const std::string& prefix);

  // x [seq', batch, hidden] -> the block's contribution to the residual stream, same shape. Fills `saved`.
  core::Tensor forward(const core::TensorView& x, AttentionActivations& saved);
  // dy: gradient of the contribution; dresidual: of the residual stream behind it, added to the returned dx.
  core::Tensor backward(const core::TensorView& dy, const core::TensorView& x, const AttentionActivations& saved,
                        const core::TensorView& dresidual);

 private:
  RankState& state_;
  const ops::RopeTable& rope_;
  Parameter& norm_;
  Parameter& qkv_;
  Parameter* qkv_bias_;
  Parameter* q_norm_;
  Parameter* k_norm_;
  Parameter& projection_;
  int64_t heads_, groups_, head_dim_;  // of this rank
  double scale_;
};

}  // namespace ms::train
