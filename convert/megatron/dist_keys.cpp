#include "convert/megatron/dist_keys.h"

#include <charconv>
#include <string_view>

#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;

constexpr std::string_view kLayers = "decoder.layers.";
constexpr std::string_view kExperts = "mlp.experts.experts.", kLocalExperts = "mlp.experts.local_experts.";

// "decoder.layers.3.mlp.linear_fc1.weight" without the layer index; other keys unchanged.
std::string without_layer(const std::string& key) {
  if (!key.starts_with(kLayers)) return key;
  return cat(kLayers, key.substr(key.find('.', kLayers.size()) + 1));
}

bool begins_with_digit(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

// Keys of megatron-core's own layers: norms of latent attention keep their names; the norm before an MLP, dense or not,
// has Transformer Engine's name.
std::string own_key(const std::string& key, const core::TransformerConfig& model) {
  if (model.multi_latent_attention) {
    const MegatronName name = parse_canonical_name(key);
    return megatron_name(name, {MegatronNaming::kLocal}).key(name.layer, name.expert);
  }
  constexpr std::string_view kNorm = "pre_mlp_layernorm.";
  const size_t at = key.find(kNorm);
  if (at == std::string::npos) return key;
  return cat(key.substr(0, at), "mlp.linear_fc1.layer_norm_", key.substr(at + kNorm.size()));
}

}  // namespace

DistKey dist_key(const layout::ParameterSpec& spec, const core::TransformerConfig& model, MegatronNaming naming) {
  DistKey key{naming == MegatronNaming::kLocal ? own_key(spec.key, model) : spec.key, {}, {}};
  // Layers are alike if all or none have experts; otherwise keys contain the layer's index.
  const bool alike = !model.has_experts() || model.moe_layer_freq == "1";
  if (alike && key.key.starts_with(kLayers)) {
    key.key = without_layer(key.key);
    key.stack.push_back(model.num_layers);
    key.at.push_back(spec.layer);
  }
  if (spec.expert >= 0) {
    const size_t at = key.key.find(kLocalExperts);
    MS_CHECK(at != std::string::npos, spec.key, " of expert ", spec.expert);
    const size_t tail = key.key.find('.', at + kLocalExperts.size()) + 1;
    key.key = cat(key.key.substr(0, at), kExperts, key.key.substr(tail));
    key.stack.push_back(spec.num_experts);
    key.at.push_back(spec.expert);
  }
  return key;
}

std::string StoredDistKey::canonical(int64_t layer_index, int64_t expert_index) const {
  std::string whole = stacks_layers ? cat(kLayers, layer_index, ".", name.substr(kLayers.size())) : name;
  if (const size_t at = whole.find(kExpertPlaceholder); at != std::string::npos) {
    whole.replace(at, kExpertPlaceholder.size(), std::to_string(expert >= 0 ? expert : expert_index));
  }
  const MegatronName parsed = parse_megatron_name(whole);
  return parsed.key(parsed.layer, parsed.expert);
}

StoredDistKey parse_dist_key(const std::string& key) {
  StoredDistKey stored{key};
  std::string& name = stored.name;
  for (const char* linear : {"linear_fc1.weight", "linear_fc1.bias"}) {
    if (name.ends_with(cat(linear, "_w"))) stored.half = 0;
    if (name.ends_with(cat(linear, "_v"))) stored.half = 1;
  }
  if (stored.half >= 0) name.resize(name.size() - 2);
  stored.stacks_layers = name.starts_with(kLayers) && name.size() > kLayers.size() &&
                         !begins_with_digit(std::string_view(name).substr(kLayers.size()));
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return stored;
  std::string tail = name.substr(at + kExperts.size());
  if (begins_with_digit(tail)) {
    const char* end = tail.data() + tail.size();
    const auto [after, error] = std::from_chars(tail.data(), end, stored.expert);
    if (error != std::errc() || after == end || *after != '.') return {key};  // not a parameter name
    tail.erase(0, static_cast<size_t>(after - tail.data()) + 1);
  } else {
    stored.stacks_experts = true;
  }
  name = cat(name.substr(0, at), kLocalExperts, kExpertPlaceholder, ".", tail);
  return stored;
}

}  // namespace ms::convert
