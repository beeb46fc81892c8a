#include "convert/megatron/names.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/error.h"

namespace ms::convert {
namespace {

// Of a name of theirs: who says so today.
enum class Spelling : uint8_t { kOld, kLocal, kEverybody };

// A name that begins with `theirs` begins with `ours`; the first that fits.
struct Renaming {
  std::string_view theirs, ours;
  Spelling spelling = Spelling::kOld;
};

constexpr Renaming kOutside[] = {
    {"language_model.embedding.", "embedding."},
    {"language_model.output_layer.", "output_layer."},
    {"language_model.encoder.final_norm.", "decoder.final_layernorm."},
    {"language_model.encoder.final_layernorm.", "decoder.final_layernorm."},
    {"language_model.transformer.final_layernorm.", "decoder.final_layernorm."},
    {"language_model.encoder.layers.", "decoder.layers."},
    {"language_model.transformer.layers.", "decoder.layers."},
    {"word_embeddings_for_head.", "output_layer."},
};

constexpr Renaming kInLayer[] = {
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_", Spelling::kLocal},
    {"input_norm.", "self_attention.linear_qkv.layer_norm_"},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", Spelling::kLocal},
    {"post_attention_norm.", "mlp.linear_fc1.layer_norm_"},
    {"post_attention_layernorm.", "mlp.linear_fc1.layer_norm_"},
    {"post_attn_norm.", "post_self_attn_layernorm.", Spelling::kEverybody},
    {"self_attention.query_key_value.", "self_attention.linear_qkv."},
    {"self_attention.dense.", "self_attention.linear_proj."},
    {"attention.query_key_value.", "self_attention.linear_qkv."},
    {"attention.dense.", "self_attention.linear_proj."},
    {"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    {"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};

template <size_t N>
std::string renamed(std::string_view name, const Renaming (&table)[N]) {
  for (const Renaming& renaming : table) {
    if (name.starts_with(renaming.theirs)) return core::cat(renaming.ours, name.substr(renaming.theirs.size()));
  }
  return std::string(name);
}

constexpr std::string_view kLayers = "decoder.layers.";

// The modules of a layer as their constructors register them: megatron/core/transformer/{transformer_layer,attention,
// mlp}.py, and behind those MindSpeed-LLM's TransformerLayerWithPostNorm.
constexpr std::string_view kRegistration[] = {"input_layernorm.",
                                              "self_attention.linear_proj.",
                                              "self_attention.linear_qkv.",
                                              "self_attention.q_layernorm.",
                                              "self_attention.k_layernorm.",
                                              "pre_mlp_layernorm.",
                                              "mlp.linear_fc1.",
                                              "mlp.linear_fc2.",
                                              "post_attn_norm.",
                                              "post_mlp_layernorm."};

}  // namespace

std::string MegatronName::key(int64_t layer_index) const {
  return layer < 0 ? rest : core::cat(kLayers, layer_index, ".", rest);
}

MegatronName parse_megatron_name(std::string_view name) {
  const std::string outside = renamed(name, kOutside);
  if (outside.starts_with(kLayers)) {
    const char* end = outside.data() + outside.size();
    int64_t layer = -1;
    const auto [after, wrong] = std::from_chars(outside.data() + kLayers.size(), end, layer);
    if (wrong == std::errc() && layer >= 0 && after != end && *after == '.') {
      return {layer, renamed(std::string_view(after + 1, static_cast<size_t>(end - after - 1)), kInLayer)};
    }
  }
  return {-1, outside};
}

MegatronName megatron_name(const MegatronName& canonical, MegatronNaming naming) {
  if (canonical.layer < 0) return canonical;
  for (const Renaming& renaming : kInLayer) {
    const bool is_said = renaming.spelling == Spelling::kEverybody ||
                         (renaming.spelling == Spelling::kLocal && naming == MegatronNaming::kLocal);
    if (!is_said || !canonical.rest.starts_with(renaming.ours)) continue;
    return {canonical.layer, core::cat(renaming.theirs, canonical.rest.substr(renaming.ours.size()))};
  }
  return canonical;
}

int registration_place(std::string_view rest) {
  const auto found = std::find_if(std::begin(kRegistration), std::end(kRegistration),
                                  [&](std::string_view module) { return rest.starts_with(module); });
  return static_cast<int>(found - std::begin(kRegistration));
}

bool has_extra_state(std::string_view module) {
  return module.ends_with("self_attention.linear_proj.") || module.ends_with("self_attention.linear_qkv.") ||
         module.ends_with("mlp.linear_fc1.") || module.ends_with("mlp.linear_fc2.") || module == "output_layer.";
}

bool is_megatron_buffer(std::string_view name) {
  for (const std::string_view ending : {"_extra_state", "inv_freq", "local_tokens_per_expert"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace ms::convert
