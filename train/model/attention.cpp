#include "train/model/attention.h"

#include <cmath>

#include "train/ops/attention.h"
#include "train/ops/linear.h"
#include "train/ops/norm.h"
#include "train/parallel/mappings.h"

namespace ms::train {

Attention::Attention(RankState& state, ParameterStore& parameters, const ops::RopeTable& rope,
                     const std::string& prefix)
    : state_(state),
      rope_(rope),
      norm_(parameters.at(prefix + "self_attention.linear_qkv.layer_norm_weight")),
      qkv_(parameters.at(prefix + "self_attention.linear_qkv.weight")),
      qkv_bias_(parameters.find(prefix + "self_attention.linear_qkv.bias")),
      q_norm_(parameters.find(prefix + "self_attention.q_layernorm.weight")),
      k_norm_(parameters.find(prefix + "self_attention.k_layernorm.weight")),
      projection_(parameters.at(prefix + "self_attention.linear_proj.weight")),
      heads_(state.config.model.num_attention_heads / state.tp_size()),
      groups_(state.config.model.query_groups() / state.tp_size()),
      head_dim_(state.config.model.kv_channels),
      scale_(1.0 / std::sqrt(static_cast<double>(head_dim_))) {}

core::Tensor Attention::forward(const core::TensorView& x, AttentionActivations& saved) {
  ops::Context& ops = state_.ops;
  const double epsilon = state_.config.model.norm_epsilon;
  saved.normed = ops::rms_norm(ops, x, norm_.weight, epsilon, &saved.rstd);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  core::Tensor packed = ops::linear(ops, full, qkv_.weight, qkv_bias_ != nullptr ? &qkv_bias_->weight : nullptr);
  gathered.reset();
  ops::QkvTensors qkv = ops::split_qkv(ops, packed, heads_, groups_, head_dim_);
  packed.reset();
  if (q_norm_ != nullptr) {
    saved.q_raw = std::move(qkv.q);
    saved.k_raw = std::move(qkv.k);
    qkv.q = ops::rms_norm(ops, saved.q_raw, q_norm_->weight, epsilon, &saved.q_rstd);
    qkv.k = ops::rms_norm(ops, saved.k_raw, k_norm_->weight, epsilon, &saved.k_rstd);
  }
  ops::rope_inplace(ops, qkv.q, rope_, 0, /*inverse=*/false);
  ops::rope_inplace(ops, qkv.k, rope_, 0, /*inverse=*/false);
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
  ops::AttentionResult result = ops::causal_attention(ops, saved.q, saved.k, saved.v, scale_);
  saved.out = std::move(result.out);
  saved.lse = std::move(result.lse);
  const core::TensorView context = saved.out.view().reshaped({saved.out.dim(0), saved.out.dim(1), heads_ * head_dim_});
  return leave_row_parallel(state_, ops::linear(ops, context, projection_.weight));
}

core::Tensor Attention::backward(const core::TensorView& dy, const core::TensorView& x,
                                 const AttentionActivations& saved, const core::TensorView& dresidual) {
  ops::Context& ops = state_.ops;
  core::Tensor gathered_dy;
  const core::TensorView full_dy = enter_column_parallel(state_, dy, gathered_dy);
  const core::Dims heads_shape = saved.out.shape();
  const core::TensorView context = saved.out.view().reshaped({heads_shape[0], heads_shape[1], heads_ * head_dim_});
  core::Tensor dcontext = ops::linear_dgrad(ops, full_dy, projection_.weight);
  ops::linear_wgrad(ops, context, full_dy, projection_.main_grad);
  gathered_dy.reset();

  ops::QkvGradients grads = ops::causal_attention_backward(ops, dcontext.view().reshaped(heads_shape), saved.q, saved.k,
                                                           saved.v, saved.out, saved.lse, scale_);
  dcontext.reset();
  ops::rope_inplace(ops, grads.dq, rope_, 0, /*inverse=*/true);
  ops::rope_inplace(ops, grads.dk, rope_, 0, /*inverse=*/true);
  if (q_norm_ != nullptr) {
    grads.dq = ops::rms_norm_backward(ops, grads.dq, saved.q_raw, q_norm_->weight, saved.q_rstd, q_norm_->main_grad);
    grads.dk = ops::rms_norm_backward(ops, grads.dk, saved.k_raw, k_norm_->weight, saved.k_rstd, k_norm_->main_grad);
  }
  core::Tensor dpacked = ops::merge_qkv(ops, grads.dq, grads.dk, grads.dv);
  grads = {};

  core::Tensor gathered;  // only the sequence shard was saved: one more all-gather (features.md 2.6)
  const core::TensorView full = enter_column_parallel(state_, saved.normed, gathered);
  core::Tensor dnormed = ops::linear_dgrad(ops, dpacked, qkv_.weight);
  ops::linear_wgrad(ops, full, dpacked, qkv_.main_grad);
  if (qkv_bias_ != nullptr) ops::bias_grad(ops, dpacked, qkv_bias_->main_grad);
  dnormed = leave_row_parallel(state_, std::move(dnormed));
  return ops::rms_norm_backward(ops, dnormed, x, norm_.weight, saved.rstd, norm_.main_grad, &dresidual);
}

}  // namespace ms::train
