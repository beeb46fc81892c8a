#include "train/model/feed_forward.h"

#include "core/error.h"
#include "train/model/mlp.h"
#include "train/model/moe_layer.h"

namespace ms::train {
namespace {

void refuse_sub_step(const char* name) { MS_CHECK(false, "a block without experts has no sub-step ", name); }

}  // namespace

void FeedForward::dispatch(const core::TensorView&, FeedForwardActivations&, const layout::LayerSlots&,
                           const SequenceContext&) {
  refuse_sub_step("dispatch");
}
void FeedForward::run_experts(FeedForwardActivations&, const SequenceContext&) { refuse_sub_step("experts"); }
void FeedForward::combine(FeedForwardActivations&) { refuse_sub_step("combine"); }
void FeedForward::combine_backward(core::Tensor&, const core::TensorView&, FeedForwardActivations&,
                                   const SequenceContext&, WeightGradients&) {
  refuse_sub_step("combine");
}
void FeedForward::run_experts_backward(FeedForwardActivations&, WeightGradients&) { refuse_sub_step("experts"); }
void FeedForward::dispatch_backward(FeedForwardActivations&, WeightGradients&) { refuse_sub_step("dispatch"); }

std::unique_ptr<FeedForward> make_feed_forward(RankState& state, ParameterStore& parameters, int64_t layer) {
  if (state.config.model.layer_has_experts(layer)) return std::make_unique<MoeLayer>(state, parameters, layer);
  return std::make_unique<Mlp>(state, parameters, layer);
}

}  // namespace ms::train
