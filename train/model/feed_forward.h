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
  // The same in two halves, before and behind the sum over TP of the contribution.
  virtual PartialSum start_forward(const core::TensorView& x, FeedForwardActivations& saved,
                                   const layout::LayerSlots& slots, const core::TensorView* residual,
                                   const SequenceContext& sequence) = 0;
  virtual core::Tensor finish_forward(PartialSum sum, FeedForwardActivations& saved,
                                      const core::TensorView* residual) = 0;
  // Fills `saved` once more, for the backward: without what only the contribution needs, and without what backward
  // computes itself where it needs it (LayerSlots::refilled).
  virtual void refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                      const SequenceContext& sequence) = 0;
  // dy: gradient of the contribution, left as it is; dresidual: of the residual stream behind it, added to the returned
  // dx. What the forward has dropped is computed again; what has been read of `saved` is given back as it goes.
  // Gradients of the linear layers' weights go to `weights`.
  core::Tensor backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                        const core::TensorView& dresidual, const SequenceContext& sequence, WeightGradients& weights) {
    return finish_backward(start_backward(dy, x, saved, sequence, weights), x, saved, dresidual);
  }
  // The same in two halves, before and behind the sum over TP of the gradient of what the norm gives.
  virtual PartialSum start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                                    const SequenceContext& sequence, WeightGradients& weights) = 0;
  virtual core::Tensor finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                                       const core::TensorView& dresidual) = 0;
};

// The implementation that the configuration asks for. layer: global index.
std::unique_ptr<FeedForward> make_feed_forward(RankState& state, ParameterStore& parameters, int64_t layer);

}  // namespace ms::train
