#include "core/layout/formulas/flops.h"

namespace ms::layout {

int64_t model_flops_per_sample(const core::TransformerConfig& model, int64_t seq_length,
                               int tensor_model_parallel_size) {
  const int64_t weights_per_layer =
      model.hidden_size * (model.qkv_rows() + model.proj_columns() + model.fc1_rows() + model.ffn_hidden_size);
  const int64_t output_weights = model.hidden_size * model.padded_vocab_size(tensor_model_parallel_size);
  const int64_t gemms = 2 * seq_length * (model.num_layers * weights_per_layer + output_weights);
  // Two products, of which the mask leaves half.
  const int64_t attention = 2 * seq_length * seq_length * model.num_attention_heads * model.kv_channels;
  constexpr int64_t kForwardAndBackward = 3;  // two gradients of each product
  return kForwardAndBackward * (gemms + model.num_layers * attention);
}

int64_t executed_flops(const TrainingStep& step, int rank) {
  const core::TransformerConfig& model = step.model;
  const Placement placement = placement_of(model, step.layout);
  const int stage = step.layout.grid().coordinates(rank).pp;
  const int64_t tp = step.layout.tensor_model_parallel_size;
  const int64_t per_weight = 2 * step.tokens() * model.hidden_size / tp;  // of a row or column of hidden_size weights
  const int64_t attention = per_weight * (model.qkv_rows() + model.proj_columns()) +
                            2 * step.tokens() * step.seq_length * (model.num_attention_heads / tp) * model.kv_channels;
  const int64_t fc1 = per_weight * model.fc1_rows(), fc2 = per_weight * model.ffn_hidden_size;
  const int64_t refill = attention + fc1 + (model.post_norm ? fc2 : 0);  // TransformerLayer::refill
  int64_t flops = 0;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
    const Place place{stage, chunk};
    const int64_t layers = placement.layers(place).count;
    for (int64_t layer = 0; layer < layers; ++layer) {
      flops += 3 * (attention + fc1 + fc2);
      if (step.recompute.rebuilt(layer).mlp) flops += fc1;
      if (!step.recompute.recomputes(layer)) continue;
      const bool last_of_group = layer + 1 == layers || step.recompute.group_begin(layer + 1) == layer + 1;
      flops += last_of_group ? refill : attention + fc1 + fc2;
    }
    if (placement.is_last(place)) flops += 3 * per_weight * model.padded_vocab_size(static_cast<int>(tp));
  }
  return step.num_microbatches * flops;
}

}  // namespace ms::layout
