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
  TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer);

  // saved.input [seq', batch, hidden] -> output of the same shape; `saved` is complete afterwards, but for what
  // saved.slots drop.
  // sequence: of the micro-batch, the same in backward.
  core::Tensor forward(LayerActivations& saved, const SequenceContext& sequence);
  // Makes `saved`, of which the input is left, complete once more, for a backward that follows at once: the output,
  // which nobody reads, is not computed.
  void refill(LayerActivations& saved, const SequenceContext& sequence);
  // dy -> gradient of saved.input. `saved` must be complete; it is given back to the arena. Gradients of the linear
  // layers' weights go to `weights`.
  core::Tensor backward(core::Tensor dy, LayerActivations& saved, const SequenceContext& sequence,
                        WeightGradients& weights);

  // Both in sub-steps (core/layout/sub_steps.h): the halves of each block, in this order. Between two halves its sum
  // over TP is under way.
  PartialSum start_attention(LayerActivations& saved, const SequenceContext& sequence);
  void finish_attention(PartialSum sum, LayerActivations& saved, const SequenceContext& sequence);
  PartialSum start_feed_forward(LayerActivations& saved, const SequenceContext& sequence);
  core::Tensor finish_feed_forward(PartialSum sum, LayerActivations& saved,
                                   const SequenceContext& sequence);  // -> output
  // dy: of the output; dmiddle: of what is between attention and the feed-forward block. Each is left as it is until
  // its block's end.
  PartialSum start_feed_forward_backward(core::Tensor& dy, LayerActivations& saved, const SequenceContext& sequence,
                                         WeightGradients& weights);
  core::Tensor finish_feed_forward_backward(PartialSum sum, core::Tensor dy, LayerActivations& saved,
                                            const SequenceContext& sequence,
                                            WeightGradients& weights);  // -> dmiddle
  PartialSum start_attention_backward(core::Tensor& dmiddle, LayerActivations& saved, const SequenceContext& sequence,
                                      WeightGradients& weights);
  core::Tensor finish_attention_backward(PartialSum sum, core::Tensor dmiddle, LayerActivations& saved);

  // Of layers whose tokens travel to experts of other ranks, in place of start_feed_forward and its backward.
  void dispatch(LayerActivations& saved, const SequenceContext& sequence);
  void run_experts(LayerActivations& saved, const SequenceContext& sequence) {
    feed_forward_->run_experts(saved.feed_forward, sequence);
  }
  void combine(LayerActivations& saved) { feed_forward_->combine(saved.feed_forward); }
  void combine_backward(core::Tensor& dy, LayerActivations& saved, const SequenceContext& sequence,
                        WeightGradients& weights);
  void run_experts_backward(LayerActivations& saved, WeightGradients& weights) {
    feed_forward_->run_experts_backward(saved.feed_forward, weights);
  }
  void dispatch_backward(LayerActivations& saved, WeightGradients& weights) {
    feed_forward_->dispatch_backward(saved.feed_forward, weights);
  }

 private:
  // dy, at the begin of a backward -> the gradient of the feed-forward block's contribution.
  core::Tensor begin_backward(core::Tensor& dy, const LayerActivations& saved, const SequenceContext& sequence);
  // The gradient of a dropped branch: a copy of dy, dropped, or dy itself.
  core::Tensor branch_gradient(const HiddenDropout& dropout, core::Tensor& dy, const SequenceContext& sequence);

  RankState& state_;
  std::string name_;  // layout::layer_name
  std::unique_ptr<Attention> attention_;
  HiddenDropout attention_dropout_;
  std::unique_ptr<FeedForward> feed_forward_;
  HiddenDropout feed_forward_dropout_;
};

}  // namespace ms::train
