#include "train/model/core_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "train/model/adaptive_attention.h"
#include "train/model/degree_attention.h"
#include "train/model/dropout.h"
#include "train/model/kv_gather_attention.h"
#include "train/model/ring_attention.h"
#include "train/model/rotary_embedding.h"
#include "train/model/sink_attention.h"
#include "train/model/ulysses_attention.h"
#include "train/ops/unfused.h"

namespace ms::train {

ops::AttentionParams attention_params(const RankState& state, int64_t layer) {
  ops::AttentionParams params;
  const core::TransformerConfig& model = state.config.model;
  const double divisor =
      model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar : static_cast<double>(model.key_head_dim());
  params.scale = model.softmax_scale > 0 ? model.softmax_scale : 1.0 / std::sqrt(divisor);
  if (model.multi_latent_attention) params.scale *= latent_score_factor(model);
  params.softcap = model.attn_logit_softcapping;
  params.window = model.window_of_layer(layer);
  params.prefix = state.config.training.prefix_length;
  params.dropout =
      dropout_of(state, layout::layer_name(model, layer) + ".self_attention.core_attention", model.attention_dropout);
  if (model.has_alibi()) params.alibi_slopes = ops::alibi_slopes(model.num_attention_heads);
  params.first_head = state.tp_rank() * (model.num_attention_heads / state.tp_size());
  return params;
}

ops::AttentionParams params_of_sequence(ops::AttentionParams params, const SequenceContext& sequence) {
  params.samples = sequence.samples;
  params.document_ends = sequence.document_ends;
  if (sequence.grid != nullptr) params.runs = sequence.grid->whole().view();
  if (sequence.samples.empty()) params.dropout.probability = 0;
  return params;
}

void CoreAttention::refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext&) {
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
}

LocalAttention::LocalAttention(RankState& state, const ops::AttentionParams& params)
    : state_(state), params_(params), fused_(state.config.training.uses_flash_attn()) {}

void LocalAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  saved.q = std::move(qkv.q);
  saved.k = std::move(qkv.k);
  saved.v = std::move(qkv.v);
  const auto attend = fused_ ? &ops::causal_attention : &ops::unfused::causal_attention;
  ops::AttentionResult result = attend(state_.ops, saved.q, saved.k, saved.v, params_of_sequence(params_, sequence));
  saved.out = std::move(result.out);
  saved.lse = std::move(result.lse);
}

ops::QkvGradients LocalAttention::backward(core::Tensor dout, CoreAttentionActivations& saved,
                                           const SequenceContext& sequence) {
  const auto backward = fused_ ? &ops::causal_attention_backward : &ops::unfused::causal_attention_backward;
  ops::QkvGradients gradients = backward(state_.ops, dout, saved.q, saved.k, saved.v, saved.out, saved.lse,
                                         params_of_sequence(params_, sequence));
  dout.reset();
  saved = {};
  return gradients;
}

namespace {

// Key and value heads of this tensor-parallel rank.
int64_t key_heads(const RankState& state) {
  const core::TransformerConfig& model = state.config.model;
  if (model.multi_latent_attention) return model.num_attention_heads / state.tp_size();
  return model.query_groups() * state.groups.grid.query_parts / state.tp_size();
}

std::unique_ptr<CoreAttention> make_ring(RankState& state, core::Communicator& ring, const ops::AttentionParams& params,
                                         const layout::ContextParts& parts, int64_t layer) {
  ProcessGroups& groups = state.groups;
  if (layout::is_adaptive(context_algorithm(state.config.parallel)))
    return std::make_unique<AdaptiveAttention>(state.ops, ring, params);
  // Layers of multi-token prediction, which run behind the last one, are as that one (layout::mtp_slots).
  const int64_t of_layer = std::min(layer, state.config.model.num_layers - 1);
  return std::make_unique<RingAttention>(
      state.ops, ring, params,
      RingAttention::Options{.window = parts.window > 1 ? &*groups.cp_window : nullptr,
                             .overlaps = state.config.parallel.use_cp_send_recv_overlap,
                             .cache = kv_cache(state.config.parallel).of_layer(of_layer)});
}

}  // namespace

std::unique_ptr<CoreAttention> make_core_attention(RankState& state, ParameterStore& parameters, int64_t layer) {
  const core::TransformerConfig& model = state.config.model;
  const ops::AttentionParams params = attention_params(state, layer);
  const auto with_sinks = [&](std::unique_ptr<CoreAttention> keys, int64_t first_head = 0) {
    if (model.softmax_type == "vanilla") return keys;
    Parameter* const sinks =
        parameters.find(layout::layer_name(model, layer) + ".self_attention.core_attention.softmax_offset");
    return std::unique_ptr<CoreAttention>(
        std::make_unique<SinkAttention>(state.ops, sinks, first_head, std::move(keys)));
  };
  if (!state.groups.cp) return with_sinks(std::make_unique<LocalAttention>(state, params));
  const ContextParallelConfig& config = state.config.parallel;
  const layout::ContextAlgorithm algorithm = context_algorithm_of_layer(config, layer);
  const layout::ContextParts parts = context_parts_of_layer(config, layer);
  const bool is_zigzag = layout::is_zigzag(context_algorithm(config));  // the ranks' share of a sequence
  const auto exchanging_heads = [&](core::Communicator& ranks) {
    const int64_t first_head = ranks.rank() * (model.num_attention_heads / state.tp_size() / ranks.size());
    ops::AttentionParams of_heads = params;
    of_heads.first_head += first_head;
    std::unique_ptr<CoreAttention> whole;
    if (parts.ring > 1) {
      whole = make_ring(state, state.groups.ring(parts), of_heads, parts, layer);
    } else {
      whole = std::make_unique<LocalAttention>(state, of_heads);
    }
    return std::make_unique<UlyssesAttention>(
        state.ops, ranks, key_heads(state), with_sinks(std::move(whole), first_head),
        UlyssesAttention::Options{.order = is_zigzag ? core::BlockOrder::kFrontBack : core::BlockOrder::kByRank,
                                  .gathers_keys = config.use_ulysses_allgather_kv});
  };
  // some: of those that share sequences; null: all.
  const auto sharing = [&](core::Communicator* some) -> std::unique_ptr<CoreAttention> {
    ProcessGroups& groups = state.groups;
    if (algorithm == layout::ContextAlgorithm::kKvAllgather)
      return with_sinks(std::make_unique<KvGatherAttention>(state.ops, some != nullptr ? *some : *groups.cp, params));
    if (parts.ulysses == 1)
      return with_sinks(make_ring(state, some != nullptr ? *some : groups.ring(parts), params, parts, layer));
    return exchanging_heads(some != nullptr ? *some : groups.heads(parts));
  };
  if (!state.groups.grid.chooses_cp) return sharing(nullptr);
  std::vector<std::unique_ptr<CoreAttention>> of_degree;
  of_degree.push_back(with_sinks(std::make_unique<LocalAttention>(state, params)));
  for (int degree = 2; degree <= state.groups.grid.cp; degree *= 2) {
    of_degree.push_back(sharing(&state.groups.of_degree(degree)));
  }
  return std::make_unique<DegreeAttention>(std::move(of_degree));
}

}  // namespace ms::train
