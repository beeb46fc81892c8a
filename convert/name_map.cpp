#include "convert/name_map.h"

#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/layout/parameter_specs.h"

namespace ms::convert {
namespace {

using core::cat;

constexpr std::string_view kLayers = "decoder.layers.", kMtpLayers = "mtp.layers.", kMtpInner = "transformer_layer.";

struct RowRange {
  int64_t offset;  // in the canonical tensor
  int64_t count;
};

// Returns the canonical rows of a part, in the order in which the Hugging Face tensor stores them.
std::vector<RowRange> canonical_rows(Part part, int64_t global_rows, const core::TransformerConfig& c) {
  const int64_t head = c.kv_channels;
  const int64_t groups = c.query_groups();
  const int64_t query_rows = c.num_attention_heads / groups * head;  // per group
  std::vector<RowRange> rows;
  const auto per_group = [&](int64_t first, int64_t count) {
    for (int64_t g = 0; g < groups; ++g) rows.push_back({g * (query_rows + 2 * head) + first, count});
  };
  switch (part) {
    case Part::kWhole:
      rows.push_back({0, global_rows});
      break;
    case Part::kQuery:
      per_group(0, query_rows);
      break;
    case Part::kKey:
      per_group(query_rows, head);
      break;
    case Part::kValue:
      per_group(query_rows + head, head);
      break;
    case Part::kQkv:
      per_group(0, query_rows);
      per_group(query_rows, head);
      per_group(query_rows + head, head);
      break;
    case Part::kGate:
      rows.push_back({0, global_rows / 2});
      break;
    case Part::kUp:
      rows.push_back({global_rows / 2, global_rows / 2});
      break;
  }
  return rows;
}

std::string with_expert(std::string_view name, int64_t expert) {
  const size_t at = name.find(kExpertPlaceholder);
  if (at == std::string_view::npos) return std::string(name);
  return cat(name.substr(0, at), expert, name.substr(at + kExpertPlaceholder.size()));
}

// Returns the name after "decoder.layers.3." or "mtp.layers.0.[transformer_layer.]", with {expert} for an expert's
// index; names outside layers are unchanged.
std::string pattern_of(const layout::ParameterSpec& spec) {
  std::string name = spec.key;
  for (const std::string_view layers : {kLayers, kMtpLayers}) {
    if (!name.starts_with(layers)) continue;
    name.erase(0, name.find('.', layers.size()) + 1);
    if (layers == kMtpLayers && name.starts_with(kMtpInner)) name.erase(0, kMtpInner.size());
  }
  if (spec.expert < 0) return name;
  const std::string index = cat(".", spec.expert, ".");
  return name.replace(name.find(index) + 1, index.size() - 2, kExpertPlaceholder);
}

class TensorLister {
 public:
  TensorLister(const Family& family, const core::TransformerConfig& config)
      : family_(family), config_(config), specs_(layout::parameter_specs(config)) {
    for (const layout::ParameterSpec& spec : specs_) by_key_.emplace(spec.key, &spec);
  }

  // Returns the parameters that no rules cover completely, each once, as on the left side of a name map.
  std::vector<std::string> unnamed() const;
  void for_each(const std::function<void(const MappedTensor&)>& visit) const;

 private:
  void add(std::span<const NameRule> rules, const std::string& hf, const std::string& canonical,
           const std::function<void(const MappedTensor&)>& visit) const;
  MappedTensor map_tensor(const NameRule& rule, const layout::ParameterSpec& spec, std::string_view hf_prefix,
                          int64_t expert) const;

  const Family& family_;
  const core::TransformerConfig& config_;
  std::vector<layout::ParameterSpec> specs_;
  std::unordered_map<std::string_view, const layout::ParameterSpec*> by_key_;
};

std::vector<std::string> TensorLister::unnamed() const {
  const auto parts_of = [](std::span<const NameRule> rules, std::map<std::string_view, std::multiset<Part>>& parts) {
    for (const NameRule& rule : rules) {
      if (!rule.is_copy) parts[rule.canonical].insert(rule.part);
    }
  };
  std::map<std::string_view, std::multiset<Part>> outside, in_layer, of_mtp;
  parts_of(family_.before, outside);
  parts_of(family_.after, outside);
  parts_of(family_.layer, in_layer);
  parts_of(family_.mtp_before, of_mtp);
  parts_of(family_.mtp_after, of_mtp);
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const layout::ParameterSpec& spec : specs_) {
    const bool mtp = spec.key.starts_with(kMtpLayers);
    const bool inner = mtp && spec.key.find(kMtpInner) != std::string::npos;
    const bool layer = spec.key.starts_with(kLayers);
    const std::string pattern = pattern_of(spec);
    const auto& parts = layer || inner ? in_layer : mtp ? of_mtp : outside;
    const auto found = parts.find(pattern);
    if (found != parts.end() && is_whole(found->second, pattern)) continue;
    const std::string name = name_in_maps(spec);
    if (seen.insert(name).second) names.push_back(name);
  }
  return names;
}

void TensorLister::add(std::span<const NameRule> rules, const std::string& hf, const std::string& canonical,
                       const std::function<void(const MappedTensor&)>& visit) const {
  const bool tied = !config_.untie_embeddings_and_output_weights;
  for (const NameRule& rule : rules) {
    const bool each = rule.hf.find(kExpertPlaceholder) != std::string_view::npos;
    for (int64_t expert = 0; expert < (each ? config_.num_experts : 1); ++expert) {
      std::string key =
          rule.is_copy ? std::string(rule.canonical) : cat(canonical, with_expert(rule.canonical, expert));
      if (rule.is_copy && tied && key == kOutputLayer) key = kWordEmbeddings;
      const auto found = by_key_.find(key);
      if (found == by_key_.end()) break;  // the model lacks such a parameter: biases, a layer without experts
      visit(map_tensor(rule, *found->second, hf, expert));
    }
  }
}

// expert: index, if the rule has a placeholder.
MappedTensor TensorLister::map_tensor(const NameRule& rule, const layout::ParameterSpec& spec,
                                      std::string_view hf_prefix, int64_t expert) const {
  MappedTensor tensor;
  const std::string hf = with_expert(rule.hf, expert);
  tensor.name = rule.canonical == kOutputLayer && !rule.is_copy ? hf : cat(hf_prefix, hf);
  tensor.key = spec.key;
  tensor.is_copy = rule.is_copy;
  if (spec.is_buffer) tensor.role = core::TensorRole::kBuffer;
  tensor.global_shape = spec.global_shape;
  tensor.shape = tensor.global_shape;
  int64_t row = 0;
  for (const RowRange& range : canonical_rows(rule.part, tensor.global_shape[0], config_)) {
    TensorPiece piece{row, core::Dims(tensor.global_shape.size(), 0), tensor.global_shape};
    piece.offset[0] = range.offset;
    piece.extent[0] = range.count;
    row += range.count;
    tensor.pieces.push_back(std::move(piece));
  }
  tensor.shape[0] = row;
  tensor.transposed = rule.transposed && tensor.shape.size() == 2;
  if (tensor.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
  if (rule.also.empty()) return tensor;
  tensor.also = rule.canonical == kOutputLayer ? std::string(rule.also) : cat(hf_prefix, rule.also);
  if (rule.hf.find(kExpertPlaceholder) == std::string_view::npos) return tensor;
  tensor.expert = expert;
  tensor.packed_rows = tensor.global_shape[0];
  tensor.packed_row = rule.part == Part::kUp ? row : 0;
  return tensor;
}

void TensorLister::for_each(const std::function<void(const MappedTensor&)>& visit) const {
  const std::string prefix(family_.prefix);
  add(family_.before, prefix, "", visit);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    add(family_.layer, layer_prefix(family_, i), cat(kLayers, i, "."), visit);
  }
  for (int64_t k = 0; k < config_.mtp_num_layers; ++k) {
    const std::string hf = layer_prefix(family_, config_.num_layers + k), canonical = cat(kMtpLayers, k, ".");
    add(family_.mtp_before, hf, canonical, visit);
    add(family_.layer, hf, cat(canonical, kMtpInner), visit);
    add(family_.mtp_after, hf, canonical, visit);
  }
  add(family_.after, prefix, "", visit);
}

}  // namespace

bool is_whole(const std::multiset<Part>& parts, std::string_view canonical) {
  using Parts = std::multiset<Part>;
  if (parts == Parts{Part::kWhole}) return true;
  if (canonical.ends_with("linear_qkv.weight") || canonical.ends_with("linear_qkv.bias")) {
    return parts == Parts{Part::kQuery, Part::kKey, Part::kValue} || parts == Parts{Part::kQkv};
  }
  const bool fc1 = canonical.ends_with("linear_fc1.weight") || canonical.ends_with("linear_fc1.bias");
  return fc1 && parts == Parts{Part::kGate, Part::kUp};
}

std::string name_in_maps(const layout::ParameterSpec& spec) {
  const bool mtp = spec.key.starts_with(kMtpLayers);
  const bool layer = spec.key.starts_with(kLayers) || (mtp && spec.key.find(kMtpInner) != std::string::npos);
  return cat(layer ? "decoder.layers.{layer}." : mtp ? "mtp.layers.{layer}." : "", pattern_of(spec));
}

std::string layer_prefix(const Family& family, int64_t layer) { return cat(family.prefix, family.layers, layer, "."); }

void check_named(const Family& family, const core::TransformerConfig& config, std::string_view where) {
  const std::vector<std::string> names = TensorLister(family, config).unnamed();
  if (names.empty()) return;
  std::string list;
  for (const std::string& name : names) list += cat(list.empty() ? "" : ", ", name);
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    cat(where, ": the names of the ", family.model_type, " family do not cover ", names.size(),
                        names.size() == 1 ? " parameter" : " parameters", " that this model has: ", list));
}

void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit) {
  TensorLister(family, config).for_each(visit);
}

bool is_ignored_buffer(std::string_view hf_name) {
  return hf_name.ends_with(".rotary_emb.inv_freq") || hf_name.ends_with(".attn.bias") ||
         hf_name.ends_with(".attn.masked_bias") || hf_name.ends_with(".attention.bias") ||
         hf_name.ends_with(".attention.masked_bias");
}

}  // namespace ms::convert
