// A model that is small enough to be looked at element by element, with gates, groups and norms of heads.
#pragma once

#include <cstdint>

#include "core/transformer_config.h"

namespace ms::test {

inline core::TransformerConfig small_model(int64_t vocab_size, bool tied = false, int64_t hidden = 24) {
  core::TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = hidden;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 4;
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.kv_channels = 6;
  config.max_position_embeddings = 16;
  config.vocab_size = vocab_size;
  config.make_vocab_size_divisible_by = 8;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.swiglu = true;
  config.add_bias_linear = false;
  config.add_qkv_bias = true;
  config.qk_layernorm = true;
  config.untie_embeddings_and_output_weights = !tied;
  return config;
}

}  // namespace ms::test
