#include "convert/name_map.h"

#include <utility>

#include "core/error.h"

namespace ms::convert {
namespace {

bool present(Presence presence, const core::TransformerConfig& config) {
  switch (presence) {
    case Presence::kAlways:
      return true;
    case Presence::kQkvBias:
      return config.add_qkv_bias;
    case Presence::kQkLayernorm:
      return config.qk_layernorm;
    case Presence::kUntied:
      return config.untie_embeddings_and_output_weights;
  }
  return false;
}

core::Dims canonical_shape(ShapeRule rule, const core::TransformerConfig& c) {
  switch (rule) {
    case ShapeRule::kVocabByHidden:
      return {c.vocab_size, c.hidden_size};
    case ShapeRule::kPositionsByHidden:
      return {c.max_position_embeddings, c.hidden_size};
    case ShapeRule::kHidden:
      return {c.hidden_size};
    case ShapeRule::kHeadDim:
      return {c.kv_channels};
    case ShapeRule::kQkvByHidden:
      return {c.qkv_rows(), c.hidden_size};
    case ShapeRule::kQkv:
      return {c.qkv_rows()};
    case ShapeRule::kHiddenByHeads:
      return {c.hidden_size, c.num_attention_heads * c.kv_channels};
    case ShapeRule::kFc1ByHidden:
      return {c.fc1_rows(), c.hidden_size};
    case ShapeRule::kFc1:
      return {c.fc1_rows()};
    case ShapeRule::kHiddenByFfn:
      return {c.hidden_size, c.ffn_hidden_size};
  }
  return {};
}

struct RowRange {
  int64_t offset;  // in the canonical tensor
  int64_t count;
};

// The canonical rows of a part, in the order in which the Hugging Face tensor holds them.
std::vector<RowRange> canonical_rows(Part part, int64_t global_rows, const core::TransformerConfig& c) {
  const int64_t head = c.kv_channels;
  const int64_t groups = c.query_groups();
  const int64_t query_rows = c.num_attention_heads / groups * head;  // of one group
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
      rows.push_back({0, c.ffn_hidden_size});
      break;
    case Part::kUp:
      rows.push_back({c.ffn_hidden_size, c.ffn_hidden_size});
      break;
  }
  return rows;
}

MappedTensor map_tensor(const NameRule& rule, const core::TransformerConfig& config, std::string_view hf_prefix,
                        std::string_view canonical_prefix) {
  MappedTensor tensor;
  tensor.name = rule.hf == kHfOutput ? std::string(rule.hf) : core::cat(hf_prefix, rule.hf);
  tensor.key = core::cat(canonical_prefix, rule.canonical);
  tensor.global_shape = canonical_shape(rule.shape, config);
  tensor.shape = tensor.global_shape;
  int64_t row = 0;
  for (const RowRange& range : canonical_rows(rule.part, tensor.global_shape[0], config)) {
    TensorPiece piece{row, core::Dims(tensor.global_shape.size(), 0), tensor.global_shape};
    piece.offset[0] = range.offset;
    piece.extent[0] = range.count;
    row += range.count;
    tensor.pieces.push_back(std::move(piece));
  }
  tensor.shape[0] = row;
  tensor.transposed = rule.transposed;
  if (rule.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
  return tensor;
}

}  // namespace

void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit) {
  const auto add = [&](std::span<const NameRule> rules, const std::string& hf, const std::string& canonical) {
    for (const NameRule& rule : rules) {
      if (present(rule.presence, config)) visit(map_tensor(rule, config, hf, canonical));
    }
  };
  const std::string prefix(family.prefix);
  add(family.before, prefix, "");
  for (int64_t i = 0; i < config.num_layers; ++i) {
    add(family.layer, core::cat(prefix, family.layers, i, "."), core::cat("decoder.layers.", i, "."));
  }
  add(family.after, prefix, "");
}

bool is_ignored_buffer(std::string_view hf_name) {
  return hf_name.ends_with(".rotary_emb.inv_freq") || hf_name.ends_with(".attn.bias") ||
         hf_name.ends_with(".attn.masked_bias");
}

}  // namespace ms::convert
