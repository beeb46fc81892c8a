#include "train/loop/model_flops.h"

namespace ms::train {

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

}  // namespace ms::train
