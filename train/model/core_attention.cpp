#include "train/model/core_attention.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "train/model/dropout.h"
#include "train/model/rotary_embedding.h"
#include "train/ops/unfused.h"

namespace ms::train {

LocalAttention::LocalAttention(RankState& state, int64_t layer)
    : state_(state), fused_(state.config.training.uses_flash_attn()) {
  const core::TransformerConfig& model = state.config.model;
  const double divisor =
      model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar : static_cast<double>(model.key_head_dim());
  params_.scale = model.softmax_scale > 0 ? model.softmax_scale : 1.0 / std::sqrt(divisor);
  if (model.multi_latent_attention) params_.scale *= latent_score_factor(model);
  params_.softcap = model.attn_logit_softcapping;
  params_.window = model.window_of_layer(layer);
  params_.dropout =
      dropout_of(state, layout::layer_name(model, layer) + ".self_attention.core_attention", model.attention_dropout);
  params_.first_head = state.tp_rank() * (model.num_attention_heads / state.tp_size());
}

ops::AttentionParams LocalAttention::params(const SequenceContext& sequence) const {
  ops::AttentionParams result = params_;
  result.samples = sequence.samples;
  result.document_ends = sequence.document_ends;
  if (sequence.samples.empty()) result.dropout.probability = 0;
  return result;
}

void LocalAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
  const auto attend = fused_ ? &ops::causal_attention : &ops::unfused::causal_attention;
  ops::AttentionResult result = attend(state_.ops, saved.q, saved.k, saved.v, params(sequence));
  saved.out = std::move(result.out);
  saved.lse = std::move(result.lse);
}

ops::QkvGradients LocalAttention::backward(core::Tensor dout, CoreAttentionActivations& saved,
                                           const SequenceContext& sequence) {
  const auto backward = fused_ ? &ops::causal_attention_backward : &ops::unfused::causal_attention_backward;
  ops::QkvGradients gradients =
      backward(state_.ops, dout, saved.q, saved.k, saved.v, saved.out, saved.lse, params(sequence));
  dout.reset();
  saved = {};
  return gradients;
}

std::unique_ptr<CoreAttention> make_core_attention(RankState& state, int64_t layer) {
  return std::make_unique<LocalAttention>(state, layer);
}

}  // namespace ms::train
