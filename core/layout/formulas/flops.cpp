#include "core/layout/formulas/flops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/layout/slot_policy.h"

namespace ms::layout {
namespace {

// FLOPs of a product of one head's scores with vectors of one element: of seq x seq scores the causal half, or what a
// window leaves of it.
int64_t visible(int64_t seq, int64_t window) {
  const int64_t keys = window > 0 ? std::min(window, seq) : seq;
  return keys * (2 * seq - keys);
}

// Of a micro-batch's products with a row or column of hidden_size weights, which TP divides.
int64_t flops_per_weight(const TrainingStep& step) {
  return 2 * step.tokens() * step.model.hidden_size / step.layout.tensor_model_parallel_size;
}

constexpr int64_t kForwardAndBackward = 3;  // two gradients of each product

// Rows or columns of a layer's weights whose gradient is not computed.
int64_t frozen_rows(const TrainingStep& step, int64_t layer) {
  if (step.frozen_parameters.empty()) return 0;
  const core::TransformerConfig& model = step.model;
  const std::pair<const char*, int64_t> linears[] = {{"self_attention.linear_qkv", model.qkv_rows()},
                                                     {"self_attention.linear_proj", model.proj_columns()},
                                                     {"mlp.linear_fc1", model.fc1_rows()},
                                                     {"mlp.linear_fc2", model.ffn_hidden_size}};
  int64_t rows = 0;
  for (const auto& [linear, size] : linears) rows += is_frozen(step, layer, linear) ? size : 0;
  return rows;
}

// Of one micro-batch through a layer.
struct LayerFlops {
  int64_t forward, fc1, fc2;
};
int64_t recomputed_flops(const core::TransformerConfig& model, const SlotTable& table, int64_t layer,
                         const LayerFlops& of) {
  const LayerSlots& slots = table[layer];
  if (!slots.runs_again()) return slots.module_drops(SavedSlot::kFc1) ? of.fc1 : 0;
  if (!table.ends_group(layer)) return of.forward;
  // TransformerLayer::refill stops at what the backward reads.
  return of.forward - (model.post_norm ? 0 : of.fc2) +
         (slots.refilled(model.post_norm).module_drops(SavedSlot::kFc1) ? of.fc1 : 0);
}

}  // namespace

int64_t attention_flops(const core::TransformerConfig& model, int64_t tokens) {
  int64_t products = 0;
  for (const int64_t window : model.windows_of_layers())
    products += 2 * visible(tokens, window) * model.num_attention_heads * model.kv_channels;
  return kForwardAndBackward * products;
}

int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length,
                               int tensor_model_parallel_size) {
  const int64_t weights_per_layer =
      model.hidden_size * (model.qkv_rows() + model.proj_columns() + model.fc1_rows() + model.ffn_hidden_size);
  const int64_t output_weights = model.hidden_size * model.padded_vocab_size(tensor_model_parallel_size);
  const int64_t gemms = 2 * seq_length * (model.num_layers * weights_per_layer + output_weights);
  return kForwardAndBackward * gemms + attention_flops(model, seq_length);
}

int64_t forward_flops(const TrainingStep& step, int64_t layer, SubStep sub_step) {
  const core::TransformerConfig& model = step.model;
  const int64_t per_weight = flops_per_weight(step);
  if (sub_step == SubStep::kMlp) return per_weight * (model.fc1_rows() + model.ffn_hidden_size);
  if (sub_step != SubStep::kAttention) return 0;
  const int64_t window = model.windows_of_layers()[static_cast<size_t>(layer)];
  const int64_t heads = step.micro_batch_size * model.num_attention_heads / step.layout.tensor_model_parallel_size;
  return per_weight * (model.qkv_rows() + model.proj_columns()) +
         2 * visible(step.seq_length, window) * heads * model.kv_channels;
}

int64_t executed_flops(const TrainingStep& step, int rank) {
  const core::TransformerConfig& model = step.model;
  const Placement placement = placement_of(model, step.layout);
  const int stage = step.layout.grid().coordinates(rank).pp;
  const int tp = step.layout.tensor_model_parallel_size;
  const int64_t per_weight = flops_per_weight(step);
  const int64_t fc1 = per_weight * model.fc1_rows(), fc2 = per_weight * model.ffn_hidden_size;
  const SlotPolicy policy(step, stage);
  int64_t flops = 0;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const Place place{stage, chunk};
    const auto [first, layers] = placement.layers(place);
    for (int64_t layer = 0; layer < layers; ++layer) {
      int64_t forward = 0;
      for (const SubStep sub_step : sub_steps(model, first + layer, tp))
        forward += forward_flops(step, first + layer, sub_step);
      flops += step.num_microbatches * (3 * forward - per_weight * frozen_rows(step, first + layer));
      for (const auto& [table, microbatches] : policy.shares(chunk))
        flops += microbatches * recomputed_flops(model, table, layer, {.forward = forward, .fc1 = fc1, .fc2 = fc2});
    }
    if (placement.is_last(place))
      flops += (output_is_frozen(step) ? 2 : 3) * step.num_microbatches * per_weight * model.padded_vocab_size(tp);
  }
  return flops;
}

}  // namespace ms::layout
