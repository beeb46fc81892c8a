// The second block of a layer: what is added to the residual stream after attention. An interface, because it is an MLP
// in one layer and could be something else in another.
#pragma once

#include <cstdint>
#include <memory>

#include "train/memory/activations.h"
#include "train/model/parameters.h"
#include "train/model/sequence_context.h"
#include "train/model/weight_gradients.h"
#include "train/parallel/mappings.h"
#include "train/rank_state.h"

namespace ms::train {

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // x [seq', batch, hidden], the residual stream -> the block's contribution to it, plus `residual` unless that is
  // null. Fills `saved`, but for what `slots` drop. sequence: of the micro-batch, the same in refill and backward.
  core::Tensor forward(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                       const core::TensorView* residual, const SequenceContext& sequence) {
    return finish_forward(start_forward(x, saved, slots, residual, sequence), saved, residual);
  }
  // The same in two halves, before and behind what is communicated last: the sum over TP of the contribution, or the
  // way of tokens back from experts of other ranks.
  virtual PartialSum start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView* residual,
                                   const SequenceContext& sequence) = 0;
  virtual core::Tensor finish_forward(PartialSum sum, FeedForwardActivations& saved,
                                      const core::TensorView* residual) = 0;
  // The first half in the sub-steps of a block whose tokens travel to experts of other ranks (core/layout/sub_steps.h),
  // each before the next one: dispatch() and combine() post an exchange, and what runs after them waits for it.
  virtual void dispatch(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                        const SequenceContext& sequence);
  virtual void run_experts(FeedForwardActivations& saved, const SequenceContext& sequence);
  virtual void combine(FeedForwardActivations& saved);
  // Fills `saved` once more, for the backward: without what only the contribution needs, and without what backward
  // computes itself where it needs it (LayerSlots::refilled).
  virtual void refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                      const SequenceContext& sequence) = 0;
  // dy: gradient of the contribution, left as it is; dresidual: of the residual stream behind it, added to the returned
  // dx. What the forward has dropped is computed again; what has been read of `saved` is given back as it goes.
  // Gradients of the linear layers' weights go to `weights`.
  core::Tensor backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                        const core::TensorView& dresidual, const SequenceContext& sequence, WeightGradients& weights) {
    return finish_backward(start_backward(dy, x, saved, sequence, weights), x, saved, dresidual, sequence, weights);
  }
  // The same in two halves, before and behind what is communicated last: the sum over TP of the gradient of what the
  // norm gives, or the way of the tokens' gradients back from the experts.
  virtual PartialSum start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                    const SequenceContext& sequence, WeightGradients& weights) = 0;
  virtual core::Tensor finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                       const core::TensorView& dresidual, const SequenceContext& sequence,
                                       WeightGradients& weights) = 0;
  // The first half in sub-steps, as the forward's: the gradient of the contribution travels to the experts, and that of
  // what they have read back.
  virtual void combine_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                const SequenceContext& sequence, WeightGradients& weights);
  virtual void run_experts_backward(FeedForwardActivations& saved, WeightGradients& weights);
  virtual void dispatch_backward(FeedForwardActivations& saved, WeightGradients& weights);
};

// The implementation that the configuration asks for. layer: global index.
std::unique_ptr<FeedForward> make_feed_forward(RankState& state, ParameterStore& parameters, int64_t layer);

}  // namespace ms::train
