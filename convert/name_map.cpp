#include "convert/name_map.h"

#include <utility>

#include "core/error.h"

namespace ms::convert {
namespace {

constexpr std::string_view kCanonicalOutput = "output_layer.weight";

// has_experts: the layer.
bool present(Presence presence, const core::TransformerConfig& config, bool has_experts) {
  switch (presence) {
    case Presence::kAlways:
      return true;
    case Presence::kQkvBias:
      return config.add_qkv_bias;
    case Presence::kQkLayernorm:
      return config.qk_layernorm;
    case Presence::kUntied:
      return config.untie_embeddings_and_output_weights;
    case Presence::kDense:
      return !has_experts;
    case Presence::kExperts:
      return has_experts;
    case Presence::kExpertBias:
      return has_experts && config.moe_router_enable_expert_bias;
    case Presence::kShared:
      return has_experts && config.moe_shared_expert_intermediate_size > 0;
    case Presence::kSharedGate:
      return has_experts && config.moe_shared_expert_gate;
    case Presence::kQueryRank:
      return config.q_lora_rank > 0;
    case Presence::kFullRankQuery:
      return config.q_lora_rank == 0;
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
      return {c.hidden_size, c.proj_columns()};
    case ShapeRule::kFc1ByHidden:
      return {c.fc1_rows(), c.hidden_size};
    case ShapeRule::kFc1:
      return {c.fc1_rows()};
    case ShapeRule::kHiddenByFfn:
      return {c.hidden_size, c.ffn_hidden_size};
    case ShapeRule::kExpertsByHidden:
      return {c.num_experts, c.hidden_size};
    case ShapeRule::kExperts:
      return {c.num_experts};
    case ShapeRule::kExpertFc1ByHidden:
      return {c.expert_fc1_rows(), c.hidden_size};
    case ShapeRule::kHiddenByExpertFfn:
      return {c.hidden_size, c.moe_ffn_hidden_size};
    case ShapeRule::kSharedFc1ByHidden:
      return {(c.gated() ? 2 : 1) * c.moe_shared_expert_intermediate_size, c.hidden_size};
    case ShapeRule::kHiddenBySharedFfn:
      return {c.hidden_size, c.moe_shared_expert_intermediate_size};
    case ShapeRule::kOneByHidden:
      return {1, c.hidden_size};
    case ShapeRule::kLatentQueryByHidden:
      return {c.latent_query_rows(), c.hidden_size};
    case ShapeRule::kQueryRankByHidden:
      return {c.q_lora_rank, c.hidden_size};
    case ShapeRule::kQueryRank:
      return {c.q_lora_rank};
    case ShapeRule::kLatentQueryByRank:
      return {c.latent_query_rows(), c.q_lora_rank};
    case ShapeRule::kKeyValueDownByHidden:
      return {c.kv_lora_rank + c.qk_pos_emb_head_dim, c.hidden_size};
    case ShapeRule::kKeyValueRank:
      return {c.kv_lora_rank};
    case ShapeRule::kKeyValueUpByRank:
      return {c.latent_key_value_rows(), c.kv_lora_rank};
    case ShapeRule::kHiddenByTwoHidden:
      return {c.hidden_size, 2 * c.hidden_size};
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
  return core::cat(name.substr(0, at), expert, name.substr(at + kExpertPlaceholder.size()));
}

// expert: of a rule with a placeholder.
MappedTensor map_tensor(const NameRule& rule, const core::TransformerConfig& config, std::string_view hf_prefix,
                        std::string_view canonical_prefix, int64_t expert) {
  MappedTensor tensor;
  const std::string hf = with_expert(rule.hf, expert);
  tensor.name = rule.hf == kHfOutput ? hf : core::cat(hf_prefix, hf);
  tensor.key =
      rule.is_copy ? std::string(rule.canonical) : core::cat(canonical_prefix, with_expert(rule.canonical, expert));
  if (rule.is_copy && rule.canonical == kCanonicalOutput && !config.untie_embeddings_and_output_weights) {
    tensor.key = kWordEmbeddings;
  }
  tensor.is_copy = rule.is_copy;
  if (rule.presence == Presence::kExpertBias) tensor.role = core::TensorRole::kBuffer;
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
  if (rule.also.empty()) return tensor;
  tensor.also = core::cat(hf_prefix, rule.also);
  if (rule.hf.find(kExpertPlaceholder) == std::string_view::npos) return tensor;
  tensor.expert = expert;
  tensor.packed_rows = tensor.global_shape[0];
  tensor.packed_row = rule.part == Part::kUp ? row : 0;
  return tensor;
}

}  // namespace

std::string layer_prefix(const Family& family, int64_t layer) {
  return core::cat(family.prefix, family.layers, layer, ".");
}

void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit) {
  const auto add = [&](std::span<const NameRule> rules, const std::string& hf, const std::string& canonical,
                       bool has_experts) {
    for (const NameRule& rule : rules) {
      if (!present(rule.presence, config, has_experts)) continue;
      const bool each = rule.hf.find(kExpertPlaceholder) != std::string_view::npos;
      for (int64_t expert = 0; expert < (each ? config.num_experts : 1); ++expert) {
        visit(map_tensor(rule, config, hf, canonical, expert));
      }
    }
  };
  const std::string prefix(family.prefix);
  const std::vector<bool> with_experts = config.layers_with_experts();
  add(family.before, prefix, "", false);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    add(family.layer, layer_prefix(family, i), core::cat("decoder.layers.", i, "."),
        with_experts.at(static_cast<size_t>(i)));
  }
  for (int64_t k = 0; k < config.mtp_num_layers; ++k) {
    const std::string hf = layer_prefix(family, config.num_layers + k), canonical = core::cat("mtp.layers.", k, ".");
    add(family.mtp_before, hf, canonical, false);
    add(family.layer, hf, canonical + "transformer_layer.", with_experts.back());
    add(family.mtp_after, hf, canonical, false);
  }
  add(family.after, prefix, "", false);
}

bool is_ignored_buffer(std::string_view hf_name) {
  return hf_name.ends_with(".rotary_emb.inv_freq") || hf_name.ends_with(".attn.bias") ||
         hf_name.ends_with(".attn.masked_bias");
}

}  // namespace ms::convert
