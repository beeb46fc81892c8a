#include "train/model/transformer_layer.h"

#include "core/error.h"
#include "core/layout/parameter_specs.h"
#include "train/model/tensor_recorder.h"
#include "train/ops/elementwise.h"

namespace ms::train {
namespace {

// x + dropout(branch of x): the branch adds x itself where nothing is dropped.
template <class Branch>
core::Tensor behind(ops::Context& ops, const HiddenDropout& dropout, const core::TensorView& x,
                    const SequenceContext& sequence, const Branch& branch) {
  if (!dropout.drops(sequence.samples)) return branch(&x);
  core::Tensor result = branch(nullptr);
  dropout.apply(result, sequence);
  ops::add_inplace(ops, result, x);
  return result;
}

}  // namespace

TransformerLayer::TransformerLayer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope,
                                   int64_t layer)
    : state_(state),
      name_(layout::layer_name(state.config.model, layer)),
      attention_(make_attention(state, parameters, rope, layer)),
      attention_dropout_(state, name_ + ".self_attention"),
      feed_forward_(make_feed_forward(state, parameters, layer)),
      feed_forward_dropout_(state, name_ + ".mlp") {}

PartialSum TransformerLayer::start_attention(LayerActivations& saved, const SequenceContext& sequence) {
  const core::TensorView x = saved.input;
  return attention_->start_forward(x, saved.attention, saved.slots,
                                   attention_dropout_.drops(sequence.samples) ? nullptr : &x, sequence);
}

void TransformerLayer::finish_attention(PartialSum sum, LayerActivations& saved, const SequenceContext& sequence) {
  saved.post_attention =
      behind(state_.ops, attention_dropout_, saved.input, sequence, [&](const core::TensorView* residual) {
        return attention_->finish_forward(std::move(sum), saved.attention, residual);
      });
  record_output(state_, name_, ".self_attn_bda", saved.post_attention, TensorRecorder::Split::kRows);
}

PartialSum TransformerLayer::start_feed_forward(LayerActivations& saved, const SequenceContext& sequence) {
  const core::TensorView x = saved.post_attention;
  return feed_forward_->start_forward(x, saved.feed_forward, saved.slots,
                                      feed_forward_dropout_.drops(sequence.samples) ? nullptr : &x, sequence);
}

void TransformerLayer::dispatch(LayerActivations& saved, const SequenceContext& sequence) {
  feed_forward_->dispatch(saved.post_attention, saved.feed_forward, saved.slots, sequence);
}

core::Tensor TransformerLayer::finish_feed_forward(PartialSum sum, LayerActivations& saved,
                                                   const SequenceContext& sequence) {
  core::Tensor output =
      behind(state_.ops, feed_forward_dropout_, saved.post_attention, sequence, [&](const core::TensorView* residual) {
        return feed_forward_->finish_forward(std::move(sum), saved.feed_forward, residual);
      });
  record_output(state_, name_, "", output, TensorRecorder::Split::kRows);
  saved.complete = true;
  return output;
}

core::Tensor TransformerLayer::forward(LayerActivations& saved, const SequenceContext& sequence) {
  finish_attention(start_attention(saved, sequence), saved, sequence);
  return finish_feed_forward(start_feed_forward(saved, sequence), saved, sequence);
}

void TransformerLayer::refill(LayerActivations& saved, const SequenceContext& sequence) {
  finish_attention(start_attention(saved, sequence), saved, sequence);
  feed_forward_->refill(saved.post_attention, saved.feed_forward, saved.slots, sequence);
  saved.complete = true;
}

core::Tensor TransformerLayer::branch_gradient(const HiddenDropout& dropout, core::Tensor& dy,
                                               const SequenceContext& sequence) {
  if (!dropout.drops(sequence.samples)) return dy.share();
  core::Tensor dropped = ops::cast(state_.ops, dy, dy.dtype());
  dropout.apply(dropped, sequence);
  return dropped;
}

core::Tensor TransformerLayer::begin_backward(core::Tensor& dy, const LayerActivations& saved,
                                              const SequenceContext& sequence) {
  MS_CHECK(saved.complete, "backward of a layer whose activations were dropped");
  record_gradient(state_, name_, "", dy, TensorRecorder::Split::kRows);
  return branch_gradient(feed_forward_dropout_, dy, sequence);
}

PartialSum TransformerLayer::start_feed_forward_backward(core::Tensor& dy, LayerActivations& saved,
                                                         const SequenceContext& sequence, WeightGradients& weights) {
  core::Tensor dbranch = begin_backward(dy, saved, sequence);
  return feed_forward_->start_backward(dbranch, saved.post_attention, saved.feed_forward, sequence, weights);
}

void TransformerLayer::combine_backward(core::Tensor& dy, LayerActivations& saved, const SequenceContext& sequence,
                                        WeightGradients& weights) {
  core::Tensor dbranch = begin_backward(dy, saved, sequence);
  feed_forward_->combine_backward(dbranch, saved.post_attention, saved.feed_forward, sequence, weights);
}

core::Tensor TransformerLayer::finish_feed_forward_backward(PartialSum sum, core::Tensor dy, LayerActivations& saved,
                                                            const SequenceContext& sequence, WeightGradients& weights) {
  core::Tensor dmiddle =
      feed_forward_->finish_backward(std::move(sum), saved.post_attention, saved.feed_forward, dy, sequence, weights);
  saved.post_attention.reset();
  saved.feed_forward = {};
  record_gradient(state_, name_, ".self_attn_bda", dmiddle, TensorRecorder::Split::kRows);
  return dmiddle;
}

PartialSum TransformerLayer::start_attention_backward(core::Tensor& dmiddle, LayerActivations& saved,
                                                      const SequenceContext& sequence, WeightGradients& weights) {
  core::Tensor dbranch = branch_gradient(attention_dropout_, dmiddle, sequence);
  return attention_->start_backward(dbranch, saved.input, saved.attention, sequence, weights);
}

core::Tensor TransformerLayer::finish_attention_backward(PartialSum sum, core::Tensor dmiddle,
                                                         LayerActivations& saved) {
  core::Tensor dx = attention_->finish_backward(std::move(sum), saved.input, saved.attention, dmiddle);
  saved = {};
  return dx;
}

core::Tensor TransformerLayer::backward(core::Tensor dy, LayerActivations& saved, const SequenceContext& sequence,
                                        WeightGradients& weights) {
  PartialSum sum = start_feed_forward_backward(dy, saved, sequence, weights);
  core::Tensor dmiddle = finish_feed_forward_backward(std::move(sum), std::move(dy), saved, sequence, weights);
  sum = start_attention_backward(dmiddle, saved, sequence, weights);
  return finish_attention_backward(std::move(sum), std::move(dmiddle), saved);
}

}  // namespace ms::train
