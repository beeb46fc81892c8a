#include "train/model/multi_latent_attention.h"

#include <tuple>
#include <utility>

#include "train/model/tensor_recorder.h"
#include "train/ops/elementwise.h"
#include "train/ops/latent_attention.h"

namespace ms::train {
namespace {

// Of a low-rank vector: its parameters are those of the up projection that reads it.
std::optional<Norm> rank_norm(RankState& state, ParameterStore& parameters, bool exists, const std::string& up) {
  if (!exists || !state.config.model.qk_layernorm) return std::nullopt;
  return Norm(state, parameters, up + ".layer_norm_weight", up + ".layer_norm_bias");
}

const char* query_projection(const RankState& state) {
  return state.config.model.q_lora_rank > 0 ? "linear_q_up_proj" : "linear_q_proj";
}

// raw: the result of a down projection -> what its up projection reads, in `latent`; with a norm `raw` stays.
void normalize(std::optional<Norm>& norm, core::Tensor& raw, ops::NormStatistics& statistics, core::Tensor& latent) {
  latent = norm ? norm->forward(raw, statistics) : std::move(raw);
}

// The gradient of `latent` becomes that of `raw`, which is given back.
void normalize_backward(std::optional<Norm>& norm, core::Tensor& gradient, core::Tensor& raw,
                        ops::NormStatistics& statistics) {
  if (!norm) return;
  gradient = norm->backward(gradient, raw, statistics);
  raw.reset();
  statistics = {};
}

}  // namespace

MultiLatentAttention::MultiLatentAttention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope,
                                           int64_t layer)
    : Attention(state, parameters, rope, layer, "input_layernorm."),
      q_norm_(rank_norm(state, parameters, state.config.model.q_lora_rank > 0, name_ + "linear_q_up_proj")),
      q_up_(state, parameters, name_ + query_projection(state)),
      kv_down_(state, parameters, name_ + "linear_kv_down_proj"),
      kv_norm_(rank_norm(state, parameters, true, name_ + "linear_kv_up_proj")),
      kv_up_(state, parameters, name_ + "linear_kv_up_proj"),
      heads_(state.config.model.num_attention_heads / state.tp_size()),
      own_(state.config.model.qk_head_dim),
      shared_(state.config.model.qk_pos_emb_head_dim),
      d_v_(state.config.model.v_head_dim),
      keeps_shared_key_(state.config.recompute_plan().has_latent_module()) {
  if (state.config.model.q_lora_rank > 0) q_down_.emplace(state, parameters, name_ + "linear_q_down_proj");
}

void MultiLatentAttention::rotate_shared(core::Tensor& shared_key, const SequenceContext& sequence, bool inverse) {
  if (rope_ == nullptr) return;
  shared_key.reshape({shared_key.dim(0), shared_key.dim(1), 1, shared_});
  rotate(shared_key, sequence, inverse);
  shared_key.reshape({shared_key.dim(0), shared_key.dim(1), shared_});
}

ops::QkvTensors MultiLatentAttention::project(AttentionActivations& saved, const layout::LayerSlots& slots,
                                              const SequenceContext& sequence) {
  if (q_down_) {
    saved.q_raw = q_down_->forward(saved.normed);
    normalize(q_norm_, saved.q_raw, saved.q_norm, saved.q_latent);
  }
  core::Tensor shared_key;
  std::tie(saved.k_raw, shared_key) =
      ops::split_columns(state_.ops, kv_down_.forward(saved.normed), state_.config.model.kv_lora_rank);
  core::Tensor gathered;
  enter_column_parallel(state_, shared_key, gathered);
  if (gathered.defined()) shared_key = std::move(gathered);
  rotate_shared(shared_key, sequence, /*inverse=*/false);
  normalize(kv_norm_, saved.k_raw, saved.k_norm, saved.kv_latent);
  ops::QkvTensors qkv = up_project(saved, shared_key, sequence);
  if (keeps_shared_key_) saved.shared_key = std::move(shared_key);
  if (slots.module_drops(layout::SavedSlot::kInputNorm)) saved.normed.reset();
  return qkv;
}

ops::QkvTensors MultiLatentAttention::up_project(const AttentionActivations& saved, const core::TensorView& shared_key,
                                                 const SequenceContext& sequence) {
  core::Tensor q = q_up_.forward(q_down_ ? saved.q_latent : saved.normed);
  record_output(state_, name_, query_projection(state_), q, TensorRecorder::Split::kColumns);
  q.reshape({q.dim(0), q.dim(1), heads_, own_ + shared_});
  if (rope_ != nullptr) rotate(q, sequence, /*inverse=*/false, own_);
  const core::Tensor kv = kv_up_.forward(saved.kv_latent);
  record_output(state_, name_, "linear_kv_up_proj", kv, TensorRecorder::Split::kColumns);
  ops::LatentKeyValues keys = ops::split_latent(state_.ops, kv, shared_key, heads_, d_v_);
  return {std::move(q), std::move(keys.k), std::move(keys.v)};
}

void MultiLatentAttention::recompute(const core::TensorView& x, AttentionActivations& saved,
                                     const SequenceContext& sequence) {
  if (saved.core.q.defined()) return;
  if (!q_down_) norm_.recompute(x, saved.normed);
  core_->refill(up_project(saved, saved.shared_key, sequence), saved.core, sequence);
}

core::Tensor MultiLatentAttention::keys_backward(ops::QkvGradients& gradients, AttentionActivations& saved,
                                                 const SequenceContext& sequence, WeightGradients& weights) {
  ops::Context& ops = state_.ops;
  ops::LatentGradients of = ops::merge_latent(ops, gradients.dk, gradients.dv, shared_);
  gradients.dk.reset();
  gradients.dv.reset();
  record_gradient(state_, name_, "linear_kv_up_proj", of.dkv, TensorRecorder::Split::kColumns);
  rotate_shared(of.dshared, sequence, /*inverse=*/true);
  core::Tensor dlatent = kv_up_.backward(std::move(of.dkv), std::move(saved.kv_latent), weights);
  core::Tensor dshared = leave_row_parallel(state_, std::move(of.dshared));
  normalize_backward(kv_norm_, dlatent, saved.k_raw, saved.k_norm);
  core::Tensor ddown = ops::join_columns(ops, dlatent, dshared);
  dlatent.reset();
  dshared.reset();
  return kv_down_.backward(std::move(ddown), saved.normed.share(), weights);
}

core::Tensor MultiLatentAttention::queries_backward(core::Tensor dq, AttentionActivations& saved,
                                                    WeightGradients& weights) {
  dq.reshape({dq.dim(0), dq.dim(1), heads_ * (own_ + shared_)});
  record_gradient(state_, name_, query_projection(state_), dq, TensorRecorder::Split::kColumns);
  if (!q_down_) return q_up_.backward(std::move(dq), std::move(saved.normed), weights);
  core::Tensor dlatent = q_up_.backward(std::move(dq), std::move(saved.q_latent), weights);
  normalize_backward(q_norm_, dlatent, saved.q_raw, saved.q_norm);
  return q_down_->backward(std::move(dlatent), std::move(saved.normed), weights);
}

PartialSum MultiLatentAttention::project_backward(ops::QkvGradients gradients, const core::TensorView& x,
                                                  AttentionActivations& saved, const SequenceContext& sequence,
                                                  WeightGradients& weights) {
  saved.shared_key.reset();
  if (rope_ != nullptr) rotate(gradients.dq, sequence, /*inverse=*/true, own_);
  norm_.recompute(x, saved.normed);
  core::Tensor dnormed = keys_backward(gradients, saved, sequence, weights);
  const core::Tensor of_queries = queries_backward(std::move(gradients.dq), saved, weights);
  ops::add_inplace(state_.ops, dnormed, of_queries);
  return {std::move(dnormed)};
}

}  // namespace ms::train
