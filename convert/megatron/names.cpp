#include "convert/megatron/names.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"

namespace ms::convert {
namespace {

// Who writes a name today: nobody (old trees only), megatron-core's own layers, those with latent attention, everybody.
enum class Spelling : uint8_t { kOld, kLocal, kLocalLatent, kEverybody };

// Replaces the prefix `theirs` by `ours`; the first match applies.
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
    {"final_layernorm.", "decoder.final_layernorm."},  // MindSpeed-LLM's, in models with multi-token prediction
};

constexpr Renaming kInLayer[] = {
    {"input_layernorm.", "self_attention.linear_qkv.layer_norm_", Spelling::kLocal},
    {"input_norm.", "self_attention.linear_qkv.layer_norm_"},
    {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", Spelling::kLocal},
    {"post_attention_norm.", "mlp.linear_fc1.layer_norm_"},
    {"post_attention_layernorm.", "mlp.linear_fc1.layer_norm_"},
    {"post_attn_norm.", "post_self_attn_layernorm.", Spelling::kEverybody},
    {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_", Spelling::kLocalLatent},
    {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", Spelling::kLocalLatent},
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
    if (renaming.spelling == Spelling::kLocalLatent) continue;  // ambiguous: norms of q and k heads have these names
    if (name.starts_with(renaming.theirs)) return core::cat(renaming.ours, name.substr(renaming.theirs.size()));
  }
  return std::string(name);
}

constexpr std::string_view kLayers = "decoder.layers.";
constexpr std::string_view kMtpLayers = "mtp.layers.";
constexpr int64_t kBehindLayers = int64_t{1} << 40;
constexpr std::string_view kMtpInner = "transformer_layer.";
constexpr std::string_view kLocalExperts = "mlp.experts.local_experts.";

// Parses the number at the start of `text`, which must end at a dot or the end of the text; returns it and its length.
std::optional<std::pair<int64_t, size_t>> leading_number(std::string_view text) {
  int64_t number = -1;
  const auto [after, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<size_t>(after - text.data());
  if (wrong != std::errc() || number < 0 || (length < text.size() && text[length] != '.')) return std::nullopt;
  return std::pair(number, length);
}

// Length of the prefix "mtp.layers.K." of a name; 0 if it has none.
size_t mtp_prefix(std::string_view name) {
  if (!name.starts_with(kMtpLayers)) return 0;
  const auto number = leading_number(name.substr(kMtpLayers.size()));
  if (!number || kMtpLayers.size() + number->second >= name.size()) return 0;
  return kMtpLayers.size() + number->second + 1;
}

// Parses experts stored one by one, "mlp.experts.local_experts.3.linear_fc1.weight", or grouped by Transformer Engine,
// "mlp.experts.linear_fc1.weight3".
MegatronName within_layer(std::string_view rest, bool is_canonical) {
  MegatronName name{-1, is_canonical ? std::string(rest) : renamed(rest, kInLayer)};
  if (rest.starts_with(kLocalExperts)) {
    const std::string_view tail = rest.substr(kLocalExperts.size());
    if (const auto number = leading_number(tail)) {
      name.expert = number->first;
      name.rest = core::cat(kLocalExperts, kExpertPlaceholder, tail.substr(number->second));
    }
    return name;
  }
  for (const std::string_view linear : {"linear_fc1.weight", "linear_fc2.weight"}) {
    const std::string prefix = core::cat("mlp.experts.", linear);
    if (!rest.starts_with(prefix)) continue;
    const auto number = leading_number(rest.substr(prefix.size()));
    if (!number || prefix.size() + number->second != rest.size()) continue;
    name.expert = number->first;
    name.rest = core::cat(kLocalExperts, kExpertPlaceholder, ".", linear);
  }
  return name;
}

// The modules of a layer in the order in which constructors register them:
// megatron/core/transformer/{transformer_layer, attention,mlp,multi_latent_attention,moe/moe_layer}.py, then
// MindSpeed-LLM's TransformerLayerWithPostNorm.
constexpr std::string_view kRegistration[] = {"input_layernorm.",
                                              "self_attention.linear_proj.",
                                              "self_attention.linear_qkv.",
                                              "self_attention.linear_q_proj.",
                                              "self_attention.linear_q_down_proj.",
                                              "self_attention.linear_q_up_proj.",
                                              "self_attention.linear_kv_down_proj.",
                                              "self_attention.linear_kv_up_proj.",
                                              "self_attention.q_layernorm.",
                                              "self_attention.k_layernorm.",
                                              "self_attention.kv_layernorm.",
                                              "pre_mlp_layernorm.",
                                              "mlp.linear_fc1.",
                                              "mlp.linear_fc2.",
                                              "mlp.router.",
                                              "mlp.experts.local_experts.",
                                              "mlp.experts.linear_fc1.",
                                              "mlp.experts.linear_fc2.",
                                              "mlp.experts.weight1",
                                              "mlp.experts.weight2",
                                              "mlp.shared_experts.gate_weight",
                                              "mlp.shared_experts.linear_fc1.",
                                              "mlp.shared_experts.linear_fc2.",
                                              "post_attn_norm.",
                                              "post_mlp_layernorm."};
constexpr std::string_view kMtpRegistration[] = {"enorm.", "hnorm.", "eh_proj.", "transformer_layer.",
                                                 "final_layernorm."};

}  // namespace

std::string MegatronName::key(int64_t layer_index, int64_t expert_index) const {
  std::string name = layer < 0 ? rest : core::cat(kLayers, layer_index, ".", rest);
  if (const size_t at = name.find(kExpertPlaceholder); expert >= 0 && at != std::string::npos) {
    name.replace(at, kExpertPlaceholder.size(), std::to_string(expert_index));
  }
  return name;
}

namespace {

MegatronName parse(const std::string& name, bool is_canonical) {
  if (name.starts_with(kLayers)) {
    const std::string_view tail = std::string_view(name).substr(kLayers.size());
    const auto number = leading_number(tail);
    if (number && number->second < tail.size()) {
      MegatronName parsed = within_layer(tail.substr(number->second + 1), is_canonical);
      parsed.layer = number->first;
      return parsed;
    }
  }
  if (const size_t prefix = mtp_prefix(name); prefix > 0) {
    const std::string_view tail = std::string_view(name).substr(prefix);
    for (const std::string_view inner : {kMtpInner, std::string_view("mtp_model_layer.")}) {
      if (!tail.starts_with(inner)) continue;
      MegatronName parsed = within_layer(tail.substr(inner.size()), is_canonical);
      parsed.rest = core::cat(name.substr(0, prefix), kMtpInner, parsed.rest);
      return parsed;
    }
  }
  return {-1, name};
}

// Returns where in `rest` the name within a layer begins, also for names with a prefix before the layer; npos if the
// name is outside the layers.
size_t begin_in_layer(const MegatronName& name) {
  if (name.layer >= 0) return 0;
  const size_t prefix = mtp_prefix(name.rest);
  const bool inner = prefix > 0 && std::string_view(name.rest).substr(prefix).starts_with(kMtpInner);
  return inner ? prefix + kMtpInner.size() : std::string::npos;
}

template <size_t N>
int place_in(std::string_view name, const std::string_view (&table)[N]) {
  const auto found =
      std::find_if(std::begin(table), std::end(table), [&](std::string_view each) { return name.starts_with(each); });
  return static_cast<int>(found - std::begin(table));
}

}  // namespace

MegatronName parse_megatron_name(std::string_view name) {
  constexpr std::string_view kMtpNorms = "mtp.final_layernorms.";  // MindSpeed-LLM's
  if (name.starts_with(kMtpNorms)) {
    const auto number = leading_number(name.substr(kMtpNorms.size()));
    if (number) {
      const std::string_view tail = name.substr(kMtpNorms.size() + number->second);
      return {-1, core::cat(kMtpLayers, number->first, ".final_layernorm", tail)};
    }
  }
  return parse(renamed(name, kOutside), false);
}

MegatronName parse_canonical_name(const std::string& key) { return parse(key, true); }

std::string key_of_model_with_experts(const std::string& key) {
  constexpr Renaming kAlone[] = {
      {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
      {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."},
      {"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_"},
      {"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_"},
  };
  for (const Renaming& renaming : kAlone) {
    const size_t at = key.find(renaming.theirs);
    if (at == std::string::npos) continue;
    return core::cat(key.substr(0, at), renaming.ours, key.substr(at + renaming.theirs.size()));
  }
  return key;
}

bool is_latent_down_projection(std::string_view key) {
  return key.ends_with("self_attention.linear_q_down_proj.weight") ||
         key.ends_with("self_attention.linear_kv_down_proj.weight");
}

bool is_grouped_experts(const MegatronName& name) {
  return name.rest.ends_with("mlp.experts.weight1") || name.rest.ends_with("mlp.experts.weight2");
}

MegatronName megatron_name(const MegatronName& canonical, const MegatronSpelling& spelling) {
  const bool is_own = spelling.naming == MegatronNaming::kLocal;
  const size_t begin = begin_in_layer(canonical);
  if (begin == std::string::npos) return canonical;
  MegatronName name = canonical;
  const std::string prefix = canonical.rest.substr(0, begin);
  const std::string_view rest = std::string_view(canonical.rest).substr(begin);
  if (spelling.grouped_experts && canonical.expert >= 0) {
    const std::string_view linear = rest.substr(rest.find(kExpertPlaceholder) + kExpertPlaceholder.size() + 1);
    name.rest = is_own ? core::cat(prefix, "mlp.experts.", linear.starts_with("linear_fc1.") ? "weight1" : "weight2")
                       : core::cat(prefix, "mlp.experts.", linear, kExpertPlaceholder);
    return name;
  }
  for (const Renaming& renaming : kInLayer) {
    const bool is_local = renaming.spelling == Spelling::kLocal || renaming.spelling == Spelling::kLocalLatent;
    const bool is_said = renaming.spelling == Spelling::kEverybody || (is_local && is_own);
    if (!is_said || !rest.starts_with(renaming.ours)) continue;
    name.rest = core::cat(prefix, renaming.theirs, rest.substr(renaming.ours.size()));
    break;
  }
  return name;
}

RegistrationPlace registration_place(const MegatronName& name) {
  const size_t begin = begin_in_layer(name);
  RegistrationPlace place;
  if (name.layer >= 0) return {name.layer, 0, place_in(name.rest, kRegistration)};
  if (const size_t prefix = mtp_prefix(name.rest); prefix > 0) {
    place.layer = kBehindLayers + leading_number(std::string_view(name.rest).substr(kMtpLayers.size()))->first;
    place.module = place_in(std::string_view(name.rest).substr(prefix), kMtpRegistration);
    if (begin != std::string::npos) place.within = place_in(std::string_view(name.rest).substr(begin), kRegistration);
    return place;
  }
  if (name.rest.starts_with("embedding.")) place.layer = -1;
  if (name.rest.starts_with("decoder.")) place.layer = kBehindLayers - 1;
  if (name.rest == kMegatronOutput) place.layer = std::numeric_limits<int64_t>::max();
  return place;
}

// Linear layers of megatron-core's own.
bool has_extra_state(std::string_view module) {
  if (module.empty()) return false;
  module.remove_suffix(1);
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return last.starts_with("linear_") || last == "output_layer" || last == "eh_proj";
}

bool is_megatron_buffer(std::string_view name) {
  for (const std::string_view ending :
       {"_extra_state", "inv_freq", "local_tokens_per_expert", "global_tokens_per_expert"}) {
    if (name.ends_with(ending)) return true;
  }
  return false;
}

}  // namespace ms::convert
