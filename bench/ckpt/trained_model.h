// What the checkpoint benches save: a Llama-style model in training, bf16 parameters with fp32 master weights and
// moments.
#pragma once

#include <vector>

#include "ckpt/shard_list.h"
#include "core/transformer_config.h"

namespace ms::bench {

// For the caller to complete (num_layers, and others' sizes) and to resolve.
inline core::TransformerConfig llama_config(int64_t hidden_size, int64_t num_attention_heads, int64_t vocab_size) {
  core::TransformerConfig config;
  config.hidden_size = hidden_size;
  config.num_attention_heads = num_attention_heads;
  config.vocab_size = vocab_size;
  config.normalization = "RMSNorm";
  config.position_embedding_type = "rope";
  config.swiglu = true;
  config.add_bias_linear = false;
  config.untie_embeddings_and_output_weights = true;
  return config;
}

// 14 bytes for each parameter.
inline std::vector<ckpt::RoleSpec> trained_roles() {
  return {{core::TensorRole::kParam, core::DType::kBf16},
          {core::TensorRole::kMaster, core::DType::kFp32},
          {core::TensorRole::kExpAvg, core::DType::kFp32},
          {core::TensorRole::kExpAvgSq, core::DType::kFp32}};
}

}  // namespace ms::bench
