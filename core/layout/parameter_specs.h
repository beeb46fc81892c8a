// The parameters of a model: names, shapes, and how tensor parallelism cuts each.
//
// Sources: megatron/core/models/gpt/gpt_layer_specs.py, tensor_parallel/layers.py, transformer/moe,
// transformer/multi_latent_attention.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dims.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::layout {

// How tensor parallelism cuts a parameter.
enum class TpRule : uint8_t {
  kReplicated,  // norms, positions, biases of row-parallel layers
  kRows,        // axis 0: linear_qkv (packed per group), biases of column-parallel layers
  kColumns,     // axis 1: linear_proj, linear_fc2
  kGatedRows,   // [gate; up]: the same rows of each half, hence two boxes: linear_fc1, its bias
  kVocabRows,   // axis 0 of the padded vocabulary; only the true rows are stored
};

struct ParameterSpec {
  std::string key;
  core::Dims global_shape;  // with the true vocabulary
  TpRule rule = TpRule::kReplicated;
  bool is_tied_embedding = false;  // the output layer reads it, too
  bool has_copy_behind = false;    // the stage of the loss also holds it, as a replica
  bool is_buffer = false;          // not trained: role kBuffer only (a router's expert_bias)
  int64_t layer = 0;               // global layer index; -1: before the layers, num_layers: after them
  int64_t mtp_layer = 0;           // of multi-token prediction, which of its layers
  int64_t expert = -1;             // global expert index of an expert's parameter
  int64_t num_experts = 0;         // of its layer
};

inline bool has_role(const ParameterSpec& spec, core::TensorRole role) {
  return spec.is_buffer == (role == core::TensorRole::kBuffer);
}

// Every parameter of the model, in model order: embedding, layers, final norm, output layer, multi-token prediction
// (mtp.layers.K, on the last stage).
// Names are Megatron core's with Transformer Engine (norm weights fused into the linear layer that follows them); norms
// after attention and MLP are post_self_attn_layernorm and post_mlp_layernorm. Experts are numbered over the whole
// layer: mlp.experts.local_experts.E.linear_fc1.weight, each a tensor of its own. config must be resolved.
std::vector<ParameterSpec> parameter_specs(const core::TransformerConfig& config);

// The spec derived from the name, for parameters that the checkpoint's model does not mention: those of experts, latent
// attention and multi-token prediction. num_experts stays 0. nullopt for an unknown name.
std::optional<ParameterSpec> parameter_spec_of(const std::string& key, std::span<const int64_t> global_shape,
                                               const core::TransformerConfig& config);

// "decoder.layers.3", or of the layers behind the model's "mtp.layers.0.transformer_layer".
std::string layer_name(const core::TransformerConfig& config, int64_t layer);

// Spec of a tensor that is not part of the model, kept under its own name: unsharded on the first stage, a buffer.
ParameterSpec passthrough_spec(std::string key, std::span<const int64_t> global_shape);

}  // namespace ms::layout
