// The block of experts of a layer: norm, router, the experts of each token, and shared experts beside them
// (megatron/core/transformer/moe/moe_layer.py), which may be on other ranks.
//
// Each token is copied to a row for each of its experts (token_dispatcher.h); the results of its rows are multiplied by
// the router's weights and added up in the order of its choices. With tensor parallelism each rank has tokens of its
// own: those of its part of the sequence. Of what needs no result of an exchange, shared experts are computed while
// tokens or their gradients travel, and gradients of experts' weights while those of their rows travel back, as far as
// --moe-alltoall-overlap-comm and its like say so; every sum has the same order either way.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "core/trace/expert_names.h"
#include "core/trace/span.h"
#include "train/memory/activations.h"
#include "train/model/experts.h"
#include "train/model/feed_forward.h"
#include "train/model/norm.h"
#include "train/model/router.h"
#include "train/model/shared_experts.h"
#include "train/model/token_dispatcher.h"
#include "train/rank_state.h"

namespace ms::train {

class MoeLayer : public FeedForward {
 public:
  // layer: global index.
  MoeLayer(RankState& state, ParameterStore& parameters, int64_t layer);

  PartialSum start_forward(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                           const core::TensorView* residual, const SequenceContext& sequence) override;
  core::Tensor finish_forward(PartialSum sum, FeedForwardActivations& saved, const core::TensorView* residual) override;
  void dispatch(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
                const SequenceContext& sequence) override;
  void run_experts(FeedForwardActivations& saved, const SequenceContext& sequence) override;
  void combine(FeedForwardActivations& saved) override;
  // Without the results of the experts, and of the activations, unless a norm behind them reads these.
  void refill(const core::TensorView& x, FeedForwardActivations& saved, const layout::LayerSlots& slots,
              const SequenceContext& sequence) override;
  PartialSum start_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                            const SequenceContext& sequence, WeightGradients& weights) override;
  core::Tensor finish_backward(PartialSum sum, const core::TensorView& x, FeedForwardActivations& saved,
                               const core::TensorView& dresidual, const SequenceContext& sequence,
                               WeightGradients& weights) override;
  void combine_backward(core::Tensor& dy, const core::TensorView& x, FeedForwardActivations& saved,
                        const SequenceContext& sequence, WeightGradients& weights) override;
  void run_experts_backward(FeedForwardActivations& saved, WeightGradients& weights) override;
  void dispatch_backward(FeedForwardActivations& saved, WeightGradients& weights) override;

 private:
  // The choices of each group of experts, as activations of their own.
  void split_choices(MoeActivations& moe);
  // Norm, router, and the rows of the experts here: the exchanges that bring them are posted at first.
  void start_route(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence);
  // What the backward of the experts reads.
  void refill_experts(const core::TensorView& x, FeedForwardActivations& saved, const SequenceContext& sequence);
  // Experts may have moved: what was chosen of one is sent to the slot that it is in.
  void send_to_slots(ops::Routing& routing) const;
  bool overlaps_shared() const { return shared_ && overlap_.shared_experts; }
  void bring_rows(MoeActivations& moe);
  // Of what the experts have given for a group, or for all, and of the gradient of what they have read.
  void start_combine(MoeActivations& part);
  void start_combine_gradient(MoeActivations& part, WeightGradients& weights);
  // Whether an expert has so many of the tokens that --moe-adaptive-recompute-activation drops what this micro-batch
  // would keep. The same on all ranks that exchange rows, or share the layer's weights.
  bool is_uneven(const MoeActivations& moe, const SequenceContext& sequence);
  void count(const MoeActivations& saved, const ops::BalanceLosses& losses, const SequenceContext& sequence);
  // Calls what posts an exchange between ranks, or waits for it, within an annotation in the trace.
  template <class Call>
  auto traced(core::trace::ExpertExchange exchange, const Call& call) {
    const core::trace::Span span(dispatches_ ? state_.ops.recorder : nullptr, core::trace::Category::kUserAnnotation,
                                 exchange_names_[static_cast<size_t>(exchange)]);
    return call();
  }

  RankState& state_;
  int64_t layer_;
  bool dispatches_;
  std::array<std::string, core::trace::kNumExpertExchanges> exchange_names_;
  layout::ExpertOverlap overlap_;
  int64_t groups_;  // of experts, whose exchanges are beside the products of others
  Norm norm_;
  Router router_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
  Experts experts_;
  std::optional<SharedExperts> shared_;
  std::optional<Norm> post_norm_;
};

}  // namespace ms::train
