// What torch_dist calls parameters, and which of them lie in one tensor: those of all layers, stacked along a first
// axis where the layers are alike, and those of a layer's experts, stacked along the next.
//
// Sources: sharded_state_dict of megatron/core/transformer/{transformer_block,mlp}.py and moe/experts.py;
// sharded_state_dict_keys_map of megatron/core/models/gpt/gpt_layer_specs.py.
#pragma once

#include <cstdint>
#include <string>

#include "ckpt/layout.h"
#include "convert/megatron/names.h"
#include "core/sharded_tensor.h"
#include "core/transformer_config.h"

namespace ms::convert {

struct DistKey {
  std::string key;
  core::Dims stack;  // lengths of the axes in front of the parameter's own: layers, experts
  core::Dims at;     // its place along these
};

// naming: whose layers write it; keys of norms in front of experts and of latent attention depend on it.
DistKey dist_key(const ckpt::ParameterSpec& spec, const core::TransformerConfig& model, MegatronNaming naming);

// A key as it is stored. Besides those of dist_key there are tensors of single experts, mlp.experts.experts.E, and of
// the halves of a gated linear_fc1, weight_w and weight_v (singleton_local_shards).
struct StoredDistKey {
  std::string name;  // without the index of a stacked layer, with kExpertPlaceholder for that of an expert
  bool stacks_layers = false, stacks_experts = false;
  int64_t expert = -1;  // a single one
  int half = -1;        // 0: the gate, 1: the other; -1: no half

  size_t axes() const { return (stacks_layers ? 1 : 0) + (stacks_experts ? 1 : 0); }
  // Of the parameter at this place of the stacks: its canonical name, or that of key_of_model_with_experts.
  std::string canonical(int64_t layer_index, int64_t expert_index) const;
};
StoredDistKey parse_dist_key(const std::string& key);

}  // namespace ms::convert
