#include "core/layout/formulas/flops.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/layout/adaptive_plan.h"
#include "core/layout/slot_policy.h"

namespace ms::layout {
namespace {

// FLOPs of a product of one head's scores with vectors of one element, of so many queries: the causal half of all
// scores, or what a window leaves of it, and those of queries in a prefix with keys behind them; or those of a grid.
int64_t visible(Segment queries, int64_t window, const SampleMask& mask) {
  if (mask.grid) return mask.grid->visible_scores(queries.first, queries.count);
  const auto of_first = [&](int64_t seq) {
    const int64_t keys = window > 0 ? std::min(window, seq) : seq, of_prefix = std::min(mask.prefix, seq);
    return keys * (2 * seq - keys) + of_prefix * (2 * mask.prefix - of_prefix);
  };
  return of_first(queries.first + queries.count) - of_first(queries.first);
}

// The same of all heads of a rank in a layer, which of a sequence has all positions of some heads, some positions of
// all, or some of some.
int64_t visible_of_rank(const TrainingStep& step, int64_t layer, int cp_rank) {
  const ContextAlgorithm algorithm = step.context_algorithm_of(layer);
  const int of_heads = step.context_parts_of(algorithm).ulysses;
  const int64_t window = step.model.window_of_layer(layer);
  const int64_t heads = step.model.num_attention_heads / step.layout.tensor_model_parallel_size / of_heads;
  const SequenceShare share =
      is_adaptive(algorithm)
          ? SequenceShare(step.adaptive_plan(), cp_rank / of_heads)
          : SequenceShare(algorithm, step.seq_length, step.layout.context_parallel_size / of_heads, cp_rank / of_heads);
  if (share.is_whole()) return visible({0, step.seq_length}, window, step.mask) * heads;
  int64_t scores = 0;
  for (const Segment& of : share.segments()) scores += visible(of, window, step.mask);
  return scores * heads;
}

// Of a micro-batch's products with a row or column of hidden_size weights, which TP divides.
int64_t flops_per_weight(const TrainingStep& step) {
  return 2 * step.tokens() * step.model.hidden_size / step.layout.tensor_model_parallel_size;
}

constexpr int64_t kForwardAndBackward = 3;  // two gradients of each product

// A weight of attention, and the FLOPs of its product with a micro-batch on this rank.
struct WeightFlops {
  const char* weight;
  int64_t flops;
};

// Elements of a weight of attention that a token meets, over all ranks; replicated: each tensor-parallel rank has all.
struct MetElements {
  const char* weight;
  int64_t elements;
  bool replicated = false;
};

std::vector<MetElements> elements_of_attention(const core::TransformerConfig& model) {
  const int64_t hidden = model.hidden_size;
  const MetElements projection{"self_attention.linear_proj.weight", hidden * model.proj_columns()};
  if (!model.multi_latent_attention)
    return {{"self_attention.linear_qkv.weight", hidden * model.qkv_rows()}, projection};
  std::vector<MetElements> result = {
      {"self_attention.linear_kv_down_proj.weight", hidden * (model.kv_lora_rank + model.qk_pos_emb_head_dim), true},
      {"self_attention.linear_kv_up_proj.weight", model.kv_lora_rank * model.latent_key_value_rows()},
      projection};
  if (model.q_lora_rank > 0) {
    result.push_back({"self_attention.linear_q_down_proj.weight", hidden * model.q_lora_rank, true});
    result.push_back({"self_attention.linear_q_up_proj.weight", model.q_lora_rank * model.latent_query_rows()});
  } else {
    result.push_back({"self_attention.linear_q_proj.weight", hidden * model.latent_query_rows()});
  }
  return result;
}

std::vector<WeightFlops> flops_of_attention(const TrainingStep& step) {
  const int64_t tp = step.layout.tensor_model_parallel_size;
  std::vector<WeightFlops> result;
  for (const MetElements& one : elements_of_attention(step.model)) {
    const bool divided = !one.replicated || step.sequence_parallel;
    result.push_back({one.weight, 2 * step.tokens() * one.elements / (divided ? tp : 1)});
  }
  return result;
}

int64_t sum(const std::vector<WeightFlops>& all) {
  int64_t flops = 0;
  for (const WeightFlops& one : all) flops += one.flops;
  return flops;
}

// A forward's of the projections that --recompute-mla-up-proj runs again.
int64_t latent_up_flops(const TrainingStep& step) {
  int64_t flops = 0;
  for (const WeightFlops& one : flops_of_attention(step)) {
    const std::string_view name = one.weight;
    const bool is_up = name.find("_up_proj") != name.npos || name.find("linear_q_proj") != name.npos;
    flops += is_up ? one.flops : 0;
  }
  return flops;
}

// A weight of a layer, and how many of its rows, or columns, of hidden_size a token meets.
struct MetRows {
  const char* weight;
  int64_t rows;
};

// Of the block after attention. Experts train all or none (train/features/mixture_of_experts.h).
std::vector<MetRows> rows_of_block(const core::TransformerConfig& model, int64_t layer) {
  if (!model.layer_has_experts(layer))
    return {{"mlp.linear_fc1.weight", model.fc1_rows()}, {"mlp.linear_fc2.weight", model.ffn_hidden_size}};
  const int64_t k = model.moe_router_topk;
  return {{"mlp.router.weight", model.num_experts},
          {"mlp.experts.local_experts.0.linear_fc1.weight", k * model.expert_fc1_rows()},
          {"mlp.experts.local_experts.0.linear_fc2.weight", k * model.moe_ffn_hidden_size},
          {"mlp.shared_experts.linear_fc1.weight", model.shared_expert_fc1_rows()},
          {"mlp.shared_experts.linear_fc2.weight", model.moe_shared_expert_intermediate_size},
          {"mlp.shared_experts.gate_weight", model.moe_shared_expert_gate ? 1 : 0}};
}

int64_t sum(const std::vector<MetRows>& all) {
  int64_t rows = 0;
  for (const MetRows& one : all) rows += one.rows;
  return rows;
}

// Of gradients that are not computed.
int64_t frozen_flops(const TrainingStep& step, int64_t layer) {
  if (step.frozen_parameters.empty()) return 0;
  const auto frozen = [&](const char* weight) {
    return is_frozen(step, core::cat(layer_name(step.model, layer), ".", weight));
  };
  int64_t flops = 0;
  for (const WeightFlops& one : flops_of_attention(step)) flops += frozen(one.weight) ? one.flops : 0;
  for (const MetRows& one : rows_of_block(step.model, layer))
    flops += frozen(one.weight) ? flops_per_weight(step) * one.rows : 0;
  return flops;
}

// Those whose results no backward of the block reads.
int64_t unread_rows(const core::TransformerConfig& model, int64_t layer) {
  if (!model.layer_has_experts(layer)) return model.ffn_hidden_size;
  const int64_t shared = model.moe_shared_expert_gate ? 0 : model.moe_shared_expert_intermediate_size;
  return model.moe_router_topk * model.moe_ffn_hidden_size + shared;
}

// Those that the block after attention computes once more in its own backward. layer: of the model.
int64_t rows_of_module(const core::TransformerConfig& model, int64_t layer, const LayerSlots& slots) {
  using enum SavedSlot;
  if (!model.layer_has_experts(layer)) return slots.module_drops(kFc1) ? model.fc1_rows() : 0;
  if (slots.module_drops(kRouting)) return sum(rows_of_block(model, layer)) - unread_rows(model, layer);
  int64_t rows = slots.module_drops(kFc1) ? model.moe_router_topk * model.expert_fc1_rows() : 0;
  if (!slots.module_drops(kShared)) return rows;
  if (model.moe_shared_expert_gate) rows += model.moe_shared_expert_intermediate_size + 1;
  return rows + model.shared_expert_fc1_rows();
}

// Of one micro-batch through a layer. unread: of the forward, what refill leaves out; number: of the layer in the
// model.
struct LayerFlops {
  int64_t forward, latent_up, unread, per_weight, number;
};
int64_t recomputed_flops(const core::TransformerConfig& model, const LayerSlots& slots, bool ends_group,
                         const LayerFlops& of) {
  if (!slots.runs_again()) {
    return of.per_weight * rows_of_module(model, of.number, slots) +
           (slots.module_drops(SavedSlot::kQ) ? of.latent_up : 0);
  }
  if (!ends_group) return of.forward;
  return of.forward - of.unread + of.per_weight * rows_of_module(model, of.number, slots.refilled(model.post_norm));
}
int64_t recomputed_flops(const core::TransformerConfig& model, const SlotTable& table, int64_t layer,
                         const LayerFlops& of) {
  return recomputed_flops(model, table[layer], table.ends_group(layer), of);
}

LayerFlops flops_of_layer(const TrainingStep& step, int64_t layer, int cp_rank) {
  int64_t forward = 0;
  const int tp = step.layout.tensor_model_parallel_size;
  for (const SubStep sub_step : sub_steps(step.model, layer, tp, step.layout.ranks_of_experts()))
    forward += forward_flops(step, layer, sub_step, cp_rank);
  const int64_t per_weight = flops_per_weight(step);
  return {.forward = forward,
          .latent_up = latent_up_flops(step),
          .unread = step.model.post_norm ? 0 : per_weight * unread_rows(step.model, layer),
          .per_weight = per_weight,
          .number = layer};
}

// Of a micro-batch's forward and backward, without what is recomputed: through a layer, the output layer, and what is
// before a layer of multi-token prediction.
int64_t trained_flops(const TrainingStep& step, const LayerFlops& of) {
  return kForwardAndBackward * of.forward - frozen_flops(step, of.number);
}
int64_t output_flops(const TrainingStep& step) {
  const int64_t products = output_is_frozen(step) ? kForwardAndBackward - 1 : kForwardAndBackward;
  return products * flops_per_weight(step) * step.model.padded_vocab_size(step.layout.tensor_model_parallel_size);
}
int64_t mtp_projection_flops(const TrainingStep& step, int64_t layer) {
  const std::string weight = core::cat("mtp.layers.", layer - step.model.num_layers, ".eh_proj.weight");
  const int64_t products = is_frozen(step, weight) ? kForwardAndBackward - 1 : kForwardAndBackward;
  return products * flops_per_weight(step) * 2 * step.model.hidden_size;
}

}  // namespace

int64_t attention_flops(const core::TransformerConfig& model, int64_t tokens, const SampleMask& mask) {
  int64_t products = 0;
  const std::vector<int64_t> windows = model.windows_of_layers();
  for (int64_t layer = 0; layer < model.num_layers_with_mtp(); ++layer) {
    const int64_t window = windows[static_cast<size_t>(std::min(layer, model.num_layers - 1))];
    products += visible({0, tokens}, window, mask) * model.num_attention_heads *
                (model.key_head_dim() + model.value_head_dim());
  }
  return kForwardAndBackward * products;
}

int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length, int tensor_model_parallel_size,
                               const SampleMask& mask) {
  const int64_t layers = model.num_layers_with_mtp();
  int64_t rows = model.padded_vocab_size(tensor_model_parallel_size);
  rows += model.mtp_num_layers * (rows + 2 * model.hidden_size);  // the output layer once more, and eh_proj
  for (int64_t layer = 0; layer < layers; ++layer) rows += sum(rows_of_block(model, layer));
  int64_t elements = model.hidden_size * rows;
  for (const MetElements& one : elements_of_attention(model)) elements += layers * one.elements;
  const int64_t gemms = 2 * seq_length * elements;
  return kForwardAndBackward * gemms + attention_flops(model, seq_length, mask);
}

int64_t forward_flops(const TrainingStep& step, int64_t layer, SubStep sub_step, int cp_rank) {
  const core::TransformerConfig& model = step.model;
  const int64_t per_weight = flops_per_weight(step);
  if (sub_step == SubStep::kMlp || sub_step == SubStep::kExperts) return per_weight * sum(rows_of_block(model, layer));
  if (sub_step != SubStep::kAttention) return 0;
  const int64_t widths = model.key_head_dim() + model.value_head_dim();
  return sum(flops_of_attention(step)) + step.micro_batch_size * visible_of_rank(step, layer, cp_rank) * widths;
}

int64_t executed_flops(const TrainingStep& step, int rank) {
  const core::TransformerConfig& model = step.model;
  const Placement placement = placement_of(model, step.layout);
  const RankGrid::Coordinates at = step.layout.grid().coordinates(rank);
  const int stage = at.pp;
  const SlotPolicy policy(step, stage);
  int64_t flops = 0;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const Place place{stage, chunk};
    const auto [first, layers] = placement.layers(place);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const LayerFlops of = flops_of_layer(step, first + layer, at.cp);
      flops += step.num_microbatches * trained_flops(step, of);
      for (const auto& [table, microbatches] : policy.shares(chunk))
        flops += microbatches * recomputed_flops(model, table, layer, of);
    }
    if (!placement.is_last(place)) continue;
    flops += step.num_microbatches * output_flops(step);
    for (int64_t layer = model.num_layers; layer < model.num_layers_with_mtp(); ++layer) {
      flops += step.num_microbatches * (output_flops(step) + mtp_projection_flops(step, layer));
      const LayerFlops of = flops_of_layer(step, layer, at.cp);
      flops += step.num_microbatches * trained_flops(step, of);
      for (const auto& [table, microbatches] : policy.shares(chunk))
        flops += microbatches * recomputed_flops(model, mtp_slots(table), /*ends_group=*/true, of);
    }
  }
  return flops;
}

}  // namespace ms::layout
