// One decoder layer: x + dropout(attention(norm(x))), then + dropout(feed_forward(norm(.)))
// (megatron/core/transformer/transformer_layer.py).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "train/model/attention.h"
#include "train/model/dropout.h"
#include "train/model/feed_forward.h"

namespace ms::train {

class TransformerLayer {
 public:
  // layer: global index. rope: null where the model has no rotary embedding.
  TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer,
                   const layout::RecomputedOutputs& recomputed);

  // saved.input [seq', batch, hidden] -> output of the same shape; `saved` is complete afterwards.
  // sequence: of the micro-batch, the same in backward.
  core::Tensor forward(LayerActivations& saved, const SequenceContext& sequence);
  // Makes `saved`, of which the input is left, complete once more, for a backward that follows at once: the output,
  // which nobody reads, is not computed.
  void refill(LayerActivations& saved, const SequenceContext& sequence);
  // dy -> gradient of saved.input. `saved` must be complete; it is given back to the arena. Gradients of the linear
  // layers' weights go to `weights`.
  core::Tensor backward(core::Tensor dy, LayerActivations& saved, const SequenceContext& sequence,
                        WeightGradients& weights);

 private:
  // The gradient of a dropped branch: a copy of dy, dropped, or dy itself.
  core::Tensor branch_gradient(const HiddenDropout& dropout, core::Tensor& dy, std::span<const int64_t> samples);

  // saved.input -> saved.post_attention, the residual stream after attention.
  void attend(LayerActivations& saved, const SequenceContext& sequence);

  RankState& state_;
  std::string name_;  // decoder.layers.N
  Attention attention_;
  HiddenDropout attention_dropout_;
  std::unique_ptr<FeedForward> feed_forward_;
  HiddenDropout feed_forward_dropout_;
};

}  // namespace ms::train
