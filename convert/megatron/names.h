// What Megatron calls parameters, and what we do: the names of megatron-core with its own layers or with Transformer
// Engine's, of the GPT before megatron-core, and of MindSpeed-LLM's additions.
//
// Sources: megatron/core/models/gpt/gpt_layer_specs.py, megatron/legacy/model/{language_model,transformer}.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ms::convert {

struct MegatronName {
  int64_t layer = -1;  // within the chunk; -1: none
  std::string rest;    // behind the layer, or all of it: canonical
  // All of it, of the layer with this index.
  std::string key(int64_t layer_index) const;
};

// name: of a tensor in a chunk's dictionary, parts of nested dictionaries joined by dots. What has no name of ours
// comes back as it is.
MegatronName parse_megatron_name(std::string_view name);

// How a tree that is written calls norms in front of linear layers: as modules of their own, megatron-core's layers, or
// as parts of the linear layer, Transformer Engine's.
enum class MegatronNaming : uint8_t { kLocal, kTransformerEngine };

// The inverse of parse_megatron_name, in today's names.
MegatronName megatron_name(const MegatronName& canonical, MegatronNaming naming);

// Where in a layer Megatron registers a parameter, by what is behind the layer in its name (megatron_name): those of a
// larger place come later, those of one place in the order of ckpt::parameter_specs.
int registration_place(std::string_view rest);

// Behind its parameters the modules of megatron-core's own layers with this prefix have an entry _extra_state: None,
// without which a strict load fails.
bool has_extra_state(std::string_view module);

// Entries that are no part of the model: state of fp8 scaling, rotary frequencies, counters of routed tokens.
bool is_megatron_buffer(std::string_view name);

// The copy of the word embeddings, or the output layer, on the last stage.
inline constexpr std::string_view kMegatronOutput = "output_layer.weight";

}  // namespace ms::convert
