#include "train/model/attention.h"

#include <utility>

#include "core/error.h"
#include "train/model/multi_latent_attention.h"
#include "train/model/tensor_recorder.h"
#include "train/ops/activation.h"
#include "train/ops/elementwise.h"
#include "train/ops/unfused.h"

namespace ms::train {
namespace {

std::string layer_prefix(const RankState& state, int64_t layer) {
  return layout::layer_name(state.config.model, layer) + ".";
}
std::string attention_prefix(const RankState& state, int64_t layer) {
  return layer_prefix(state, layer) + "self_attention.";
}

// The norm of queries or keys [seq, batch, heads, d]: of each head, or of all of them as one vector, as which `raw`
// stays.
core::Tensor norm_heads(Norm& norm, bool all_at_once, core::Tensor& raw, ops::NormStatistics& statistics) {
  const core::Dims heads = raw.shape();
  if (all_at_once) raw.reshape({heads[0], heads[1], heads[2] * heads[3]});
  core::Tensor normed = norm.forward(raw, statistics);
  normed.reshape(heads);
  return normed;
}
core::Tensor norm_heads_backward(Norm& norm, core::Tensor dy, const core::Tensor& raw,
                                 const ops::NormStatistics& statistics) {
  const core::Dims heads = dy.shape();
  dy.reshape(raw.shape());
  core::Tensor dx = norm.backward(dy, raw, statistics);
  dx.reshape(heads);
  return dx;
}

}  // namespace

Attention::Attention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer,
                     const char* norm)
    : state_(state),
      name_(attention_prefix(state, layer)),
      rope_(state.config.model.layer_has_rope(layer) ? rope : nullptr),
      norm_(state, parameters, core::cat(layer_prefix(state, layer), norm, "weight"),
            core::cat(layer_prefix(state, layer), norm, "bias")),
      core_(make_core_attention(state, parameters, layer)),
      projection_(state, parameters, attention_prefix(state, layer) + "linear_proj"),
      post_norm_(optional_norm(state.config.model.post_norm, state, parameters,
                               layer_prefix(state, layer) + "post_self_attn_layernorm")) {}

void Attention::rotate(core::Tensor& x, const SequenceContext& sequence, bool inverse, int64_t first_element) {
  if (!state_.config.training.fuses_rotary_pos_emb()) {
    x = ops::unfused::rope(state_.ops, x, *rope_, sequence.rotary_positions, inverse, first_element);
  } else if (sequence.rotary_positions.empty()) {
    ops::rope_inplace(state_.ops, x, *rope_, 0, inverse, first_element);
  } else {
    ops::rope_inplace(state_.ops, x, *rope_, sequence.rotary_positions, inverse, first_element);
  }
}

core::Tensor Attention::context_of(AttentionActivations& saved) {
  core::Tensor& out = saved.core.out;
  core::Tensor context = saved.gate.defined() ? ops::sigmoid_gate(state_.ops, out, saved.gate) : out.share();
  context.reshape({out.dim(0), out.dim(1), out.dim(2) * out.dim(3)});
  return context;
}

PartialSum Attention::start_forward(const core::TensorView& x, AttentionActivations& saved,
                                    const layout::LayerSlots& slots, const core::TensorView* residual,
                                    const SequenceContext& sequence) {
  saved.normed = norm_.forward(x, saved.norm);
  core_->forward(project(saved, slots, sequence), saved.core, sequence);
  if (slots.module_drops(layout::SavedSlot::kQ)) {
    for (core::Tensor* dropped : {&saved.core.q, &saved.core.k, &saved.core.v}) dropped->reset();
  }
  record_output(state_, name_, "core_attention", saved.core.out, TensorRecorder::Split::kColumns);
  return projection_.start_forward(context_of(saved), post_norm_ ? nullptr : residual);
}

core::Tensor Attention::finish_forward(PartialSum sum, AttentionActivations& saved, const core::TensorView* residual) {
  core::Tensor branch = projection_.finish_forward(std::move(sum), post_norm_ ? nullptr : residual);
  if (!post_norm_) return branch;
  saved.branch = std::move(branch);
  core::Tensor normed = post_norm_->forward(saved.branch, saved.post_norm);
  if (residual != nullptr) ops::add_inplace(state_.ops, normed, *residual);
  return normed;
}

PartialSum Attention::start_backward(core::Tensor& dy, const core::TensorView& x, AttentionActivations& saved,
                                     const SequenceContext& sequence, WeightGradients& weights) {
  core::Tensor dbranch;
  if (post_norm_) dbranch = post_norm_->backward(dy, saved.branch, saved.post_norm);
  core::Tensor dcontext = projection_.backward(post_norm_ ? dbranch : dy, context_of(saved), weights);
  dbranch.reset();
  if (saved.gate.defined()) {
    const core::Dims shape = dcontext.shape();
    ops::sigmoid_gate_backward_inplace(state_.ops, dcontext, saved.core.out.view().reshaped(shape),
                                       saved.gate.view().reshaped(shape));
  }
  record_gradient(state_, name_, "core_attention", dcontext, TensorRecorder::Split::kColumns);
  recompute(x, saved, sequence);
  dcontext.reshape(saved.core.out.shape());
  return project_backward(core_->backward(std::move(dcontext), saved.core, sequence), x, saved, sequence, weights);
}

core::Tensor Attention::finish_backward(PartialSum sum, const core::TensorView& x, AttentionActivations& saved,
                                        const core::TensorView& dresidual) {
  return norm_.backward_over(sum.take(), x, saved.norm, &dresidual);
}

SelfAttention::SelfAttention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer)
    : Attention(state, parameters, rope, layer, "self_attention.linear_qkv.layer_norm_"),
      qkv_(state, parameters, name_ + "linear_qkv"),
      shared_group_(shared_query_group(state)),
      q_norm_(optional_norm(state.config.model.qk_layernorm, state, parameters, name_ + "q_layernorm")),
      k_norm_(optional_norm(state.config.model.qk_layernorm, state, parameters, name_ + "k_layernorm")),
      heads_(state.config.model.num_attention_heads / state.tp_size()),
      groups_(state.config.model.query_groups() * state.groups.grid.query_parts / state.tp_size()),
      head_dim_(state.config.model.kv_channels),
      has_gate_(state.config.model.attention_output_gate) {}

ops::QkvTensors SelfAttention::project(AttentionActivations& saved, const layout::LayerSlots& slots,
                                       const SequenceContext& sequence) {
  core::Tensor packed = qkv_.forward(saved.normed);
  record_output(state_, name_, "linear_qkv", packed, TensorRecorder::Split::kColumns);
  if (slots.module_drops(layout::SavedSlot::kInputNorm)) saved.normed.reset();
  ops::QkvTensors qkv = shared_group_ ? shared_group_->gather(std::move(packed))
                                      : ops::split_qkv(state_.ops, packed, heads_, groups_, head_dim_, has_gate_);
  packed.reset();
  saved.gate = std::move(qkv.gate);
  if (q_norm_) {
    saved.q_raw = std::move(qkv.q);
    saved.k_raw = std::move(qkv.k);
    const bool all_at_once = state_.config.model.qk_layernorm_all_heads;
    qkv.q = norm_heads(*q_norm_, all_at_once, saved.q_raw, saved.q_norm);
    qkv.k = norm_heads(*k_norm_, all_at_once, saved.k_raw, saved.k_norm);
  }
  if (rope_ != nullptr) {
    rotate(qkv.q, sequence, /*inverse=*/false);
    rotate(qkv.k, sequence, /*inverse=*/false);
  }
  return qkv;
}

PartialSum SelfAttention::project_backward(ops::QkvGradients grads, const core::TensorView& x,
                                           AttentionActivations& saved, const SequenceContext& sequence,
                                           WeightGradients& weights) {
  if (rope_ != nullptr) {
    rotate(grads.dq, sequence, /*inverse=*/true);
    rotate(grads.dk, sequence, /*inverse=*/true);
  }
  if (q_norm_) {
    grads.dq = norm_heads_backward(*q_norm_, std::move(grads.dq), saved.q_raw, saved.q_norm);
    grads.dk = norm_heads_backward(*k_norm_, std::move(grads.dk), saved.k_raw, saved.k_norm);
  }
  core::Tensor dpacked;
  if (shared_group_) {
    dpacked = shared_group_->scatter(std::move(grads), std::move(saved.gate));
  } else {
    dpacked = ops::merge_qkv(state_.ops, grads.dq, grads.dk, grads.dv, has_gate_ ? &saved.gate.view() : nullptr);
  }
  grads = {};
  saved.gate.reset();
  record_gradient(state_, name_, "linear_qkv", dpacked, TensorRecorder::Split::kColumns);
  norm_.recompute(x, saved.normed);
  return qkv_.start_backward(std::move(dpacked), std::move(saved.normed), weights);
}

std::unique_ptr<Attention> make_attention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope,
                                          int64_t layer) {
  if (state.config.model.multi_latent_attention)
    return std::make_unique<MultiLatentAttention>(state, parameters, rope, layer);
  return std::make_unique<SelfAttention>(state, parameters, rope, layer);
}

}  // namespace ms::train
