// What Megatron calls parameters, and what we do: the names of megatron-core with its own layers or with Transformer
// Engine's, of the GPT before megatron-core, and of MindSpeed-LLM's additions.
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
  int64_t layer = -1;   // within the chunk; -1: none
  std::string rest;     // behind the layer, or all of it: canonical, of an expert with kExpertPlaceholder for its index
  int64_t expert = -1;  // among those of the rank; -1: none
  // All of it, of the layer with this index and the expert with that.
  std::string key(int64_t layer_index, int64_t expert_index = 0) const;
};

// name: of a tensor in a chunk's dictionary, parts of nested dictionaries joined by dots. What has no name of ours
// comes back as it is.
MegatronName parse_megatron_name(std::string_view name);

// A canonical name that a model may have in place of this one: of norms in front of experts or of latent attention,
// which stand alone, and of those of its ranks. The same name if there is none.
std::string key_of_model_with_experts(const std::string& key);

// Latent attention's linear_q_down_proj and linear_kv_down_proj, which megatron-core's own layers cut by rows and
// Transformer Engine's do not.
bool is_latent_down_projection(std::string_view key);

// Of grouped experts before Transformer Engine's: all of a rank in one tensor, mlp.experts.weight1 and weight2.
bool is_grouped_experts(const MegatronName& name);

// How a tree that is written calls norms in front of linear layers: as modules of their own, megatron-core's layers, or
// as parts of the linear layer, Transformer Engine's.
enum class MegatronNaming : uint8_t { kLocal, kTransformerEngine };

struct MegatronSpelling {
  MegatronNaming naming = MegatronNaming::kLocal;
  // All experts of a rank in a module: Transformer Engine's grouped linear layers, or megatron-core's own from before
  // those, with one tensor for the experts' first matrices and one for the second.
  bool grouped_experts = false;
};

// Of a canonical name, which stays as it is.
MegatronName parse_canonical_name(const std::string& key);

// The inverse of parse_megatron_name, in today's names; canonical: of parse_canonical_name.
MegatronName megatron_name(const MegatronName& canonical, const MegatronSpelling& spelling);

// Where in a chunk Megatron registers a parameter (megatron_name): those of a larger place come later, those of one
// place in the order of ckpt::parameter_specs.
struct RegistrationPlace {
  int64_t layer = 0;
  int module = 0, within = 0;
  auto operator<=>(const RegistrationPlace&) const = default;
};
RegistrationPlace registration_place(const MegatronName& name);

// Behind its parameters the modules of megatron-core's own layers with this prefix have an entry _extra_state: None,
// without which a strict load fails.
bool has_extra_state(std::string_view module);

// Entries that are no part of the model: state of fp8 scaling, rotary frequencies, counters of routed tokens.
bool is_megatron_buffer(std::string_view name);

// The copy of the word embeddings, or the output layer, on the last stage.
inline constexpr std::string_view kMegatronOutput = "output_layer.weight";

}  // namespace ms::convert
