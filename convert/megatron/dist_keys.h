// Maps parameters to their keys in torch_dist, and defines which parameters share a tensor: those of all layers,
// stacked along a first axis if all layers are alike, and those of a layer's experts, stacked along the next axis.
//
// Sources: sharded_state_dict of megatron/core/transformer/{transformer_block,mlp}.py and moe/experts.py;
// sharded_state_dict_keys_map of megatron/core/models/gpt/gpt_layer_specs.py.
#pragma once

#include <cstdint>
#include <string>

#include "convert/megatron/names.h"
#include "core/layout/parameter_specs.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::convert {

struct DistKey {
  std::string key;
  core::Dims stack;  // lengths of the stacking axes before the parameter's own: layers, experts
  core::Dims at;     // index along these axes
};

// naming: the layer implementation that writes the checkpoint; the keys of norms before experts and in latent attention
// depend on it.
DistKey dist_key(const layout::ParameterSpec& spec, const core::TransformerConfig& model, MegatronNaming naming);

// A key as stored. Besides the keys of dist_key there are tensors of single experts, mlp.experts.experts.E, and of the
// halves of a gated linear_fc1, weight_w and weight_v (singleton_local_shards).
struct StoredDistKey {
  std::string name;  // without the index of a stacked layer; kExpertPlaceholder replaces an expert's index
  bool stacks_layers = false, stacks_experts = false;
  int64_t expert = -1;  // index of a single expert
  int half = -1;        // 0: the gate, 1: the up projection; -1: not a half

  size_t axes() const { return (stacks_layers ? 1 : 0) + (stacks_experts ? 1 : 0); }
  // Returns the name of the parameter at these stack indices: its canonical name, or that of key_of_model_with_experts.
  std::string canonical(int64_t layer_index, int64_t expert_index) const;
};
StoredDistKey parse_dist_key(const std::string& key);

}  // namespace ms::convert
