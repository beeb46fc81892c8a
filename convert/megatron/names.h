// Translates between Megatron's parameter names and ours: the names of megatron-core with its own layers or with
// Transformer Engine's, of the GPT before megatron-core, and of MindSpeed-LLM's additions.
//
// Sources: megatron/core/models/gpt/gpt_layer_specs.py, megatron/legacy/model/{language_model,transformer}.py.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "convert/family.h"

namespace ms::convert {

struct MegatronName {
  int64_t layer = -1;  // within the chunk; -1: none
  std::string rest;  // the canonical name after the layer, or all of it; kExpertPlaceholder replaces an expert's index
  int64_t expert = -1;  // among the rank's experts; -1: none
  // Returns the full name, with these indices of layer and expert.
  std::string key(int64_t layer_index, int64_t expert_index = 0) const;
};

// name: of a tensor in a chunk's dictionary; the keys of nested dictionaries are joined by dots. An unknown name is
// returned as it is.
MegatronName parse_megatron_name(std::string_view name);

// Returns the canonical name that a model with experts or latent attention has instead of this one: its norms before
// experts are separate modules, and those of latent attention are fused into the up projections. Returns the same name
// if there is no such alternative.
std::string key_of_model_with_experts(const std::string& key);

// Latent attention's linear_q_down_proj and linear_kv_down_proj, which megatron-core's own layers cut by rows and
// Transformer Engine's do not.
bool is_latent_down_projection(std::string_view key);

// Returns true for grouped experts of megatron-core's own layers: all experts of a rank in one tensor,
// mlp.experts.weight1 or weight2.
bool is_grouped_experts(const MegatronName& name);

// The names of norms before linear layers in a tree to be written: modules of their own (megatron-core's layers), or
// parts of the linear layer (Transformer Engine's).
enum class MegatronNaming : uint8_t { kLocal, kTransformerEngine };

struct MegatronSpelling {
  MegatronNaming naming = MegatronNaming::kLocal;
  // All experts of a rank in one module: Transformer Engine's grouped linear layers or, before those, megatron-core's
  // own with one tensor for the experts' first matrices and one for the second.
  bool grouped_experts = false;
};

// Parses a canonical name without renaming it.
MegatronName parse_canonical_name(const std::string& key);

// The inverse of parse_megatron_name, with current names; canonical: from parse_canonical_name.
MegatronName megatron_name(const MegatronName& canonical, const MegatronSpelling& spelling);

// Position in a chunk at which Megatron registers a parameter (megatron_name): greater positions are registered later,
// equal ones in the order of layout::parameter_specs.
struct RegistrationPlace {
  int64_t layer = 0;
  int module = 0, within = 0;
  auto operator<=>(const RegistrationPlace&) const = default;
};
RegistrationPlace registration_place(const MegatronName& name);

// Returns true if the module with this prefix (of megatron-core's own layers) has an entry _extra_state: None after its
// parameters, without which a strict load fails.
bool has_extra_state(std::string_view module);

// Entries that are not part of the model: fp8 scaling state, rotary frequencies, counters of routed tokens.
bool is_megatron_buffer(std::string_view name);

// The copy of the word embeddings, or the output layer, on the last stage.
inline constexpr std::string_view kMegatronOutput = "output_layer.weight";

}  // namespace ms::convert
