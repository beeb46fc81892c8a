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
  // The canonical name, of the layer with this global index.
  std::string key(int64_t global_layer) const;
};

// name: of a tensor in a chunk's dictionary, parts of nested dictionaries joined by dots. What has no name of ours
// comes back as it is.
MegatronName parse_megatron_name(std::string_view name);

// Entries that are no part of the model: state of fp8 scaling, rotary frequencies, counters of routed tokens.
bool is_megatron_buffer(std::string_view name);

// The copy of the word embeddings, or the output layer, on the last stage.
inline constexpr std::string_view kMegatronOutput = "output_layer.weight";

}  // namespace ms::convert
