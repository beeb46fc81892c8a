#include "core/layout/formulas/flops.h"

#include <algorithm>
#include <vector>

namespace ms::layout {
namespace {

// FLOPs of a product of one head's scores with vectors of one element: of seq x seq scores the causal half, or what a
// window leaves of it.
int64_t visible(int64_t seq, int64_t window) {
  const int64_t keys = window > 0 ? std::min(window, seq) : seq;
  return keys * (2 * seq - keys);
}

}  // namespace

int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length,
                               int tensor_model_parallel_size) {
  const int64_t weights_per_layer =
      model.hidden_size * (model.qkv_rows() + model.proj_columns() + model.fc1_rows() + model.ffn_hidden_size);
  const int64_t output_weights = model.hidden_size * model.padded_vocab_size(tensor_model_parallel_size);
  const int64_t gemms = 2 * seq_length * (model.num_layers * weights_per_layer + output_weights);
  int64_t attention = 0;  // two products
  for (const int64_t window : model.windows_of_layers())
    attention += 2 * visible(seq_length, window) * model.num_attention_heads * model.kv_channels;
  constexpr int64_t kForwardAndBackward = 3;  // two gradients of each product
  return kForwardAndBackward * (gemms + attention);
}

int64_t executed_flops(const TrainingStep& step, int rank) {
  const core::TransformerConfig& model = step.model;
  const Placement placement = placement_of(model, step.layout);
  const int stage = step.layout.grid().coordinates(rank).pp;
  const int64_t tp = step.layout.tensor_model_parallel_size;
  const int64_t per_weight = 2 * step.tokens() * model.hidden_size / tp;  // of a row or column of hidden_size weights
  const int64_t projections = per_weight * (model.qkv_rows() + model.proj_columns());
  const int64_t heads = step.micro_batch_size * model.num_attention_heads / tp;
  const std::vector<int64_t> windows = model.windows_of_layers();
  const int64_t fc1 = per_weight * model.fc1_rows(), fc2 = per_weight * model.ffn_hidden_size;
  int64_t flops = 0;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const Place place{stage, chunk};
    const auto [first, layers] = placement.layers(place);
    for (int64_t layer = 0; layer < layers; ++layer) {
      const int64_t window = windows[static_cast<size_t>(first + layer)];
      const int64_t attention = projections + 2 * visible(step.seq_length, window) * heads * model.kv_channels;
      flops += 3 * (attention + fc1 + fc2);
      if (step.recompute.rebuilt(layer).mlp) flops += fc1;
      if (!step.recompute.recomputes(layer)) continue;
      const bool last_of_group = layer + 1 == layers || step.recompute.group_begin(layer + 1) == layer + 1;
      // TransformerLayer::refill stops at what the backward reads.
      flops += attention + fc1 + (last_of_group && !model.post_norm ? 0 : fc2);
    }
    if (placement.is_last(place)) flops += 3 * per_weight * model.padded_vocab_size(static_cast<int>(tp));
  }
  return step.num_microbatches * flops;
}

}  // namespace ms::layout
