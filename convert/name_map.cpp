#include "convert/name_map.h"

#include <array>

#include "convert/detail/printable.h"
#include "core/error.h"

namespace ms::convert {
namespace {

constexpr std::array<NameRule, 1> kBefore = {{
    {kHfEmbedding, "embedding.word_embeddings.weight", Part::kWhole, ShapeRule::kVocabByHidden},
}};

constexpr std::array<NameRule, 14> kLayer = {{
    {"self_attn.q_proj.weight", "self_attention.linear_qkv.weight", Part::kQuery, ShapeRule::kQkvByHidden},
    {"self_attn.q_proj.bias", "self_attention.linear_qkv.bias", Part::kQuery, ShapeRule::kQkv, Presence::kQkvBias},
    {"self_attn.k_proj.weight", "self_attention.linear_qkv.weight", Part::kKey, ShapeRule::kQkvByHidden},
    {"self_attn.k_proj.bias", "self_attention.linear_qkv.bias", Part::kKey, ShapeRule::kQkv, Presence::kQkvBias},
    {"self_attn.v_proj.weight", "self_attention.linear_qkv.weight", Part::kValue, ShapeRule::kQkvByHidden},
    {"self_attn.v_proj.bias", "self_attention.linear_qkv.bias", Part::kValue, ShapeRule::kQkv, Presence::kQkvBias},
    {"self_attn.o_proj.weight", "self_attention.linear_proj.weight", Part::kWhole, ShapeRule::kHiddenByHeads},
    {"self_attn.q_norm.weight", "self_attention.q_layernorm.weight", Part::kWhole, ShapeRule::kHeadDim,
     Presence::kQkLayernorm},
    {"self_attn.k_norm.weight", "self_attention.k_layernorm.weight", Part::kWhole, ShapeRule::kHeadDim,
     Presence::kQkLayernorm},
    {"mlp.gate_proj.weight", "mlp.linear_fc1.weight", Part::kGate, ShapeRule::kFfnByHidden},
    {"mlp.up_proj.weight", "mlp.linear_fc1.weight", Part::kUp, ShapeRule::kFfnByHidden},
    {"mlp.down_proj.weight", "mlp.linear_fc2.weight", Part::kWhole, ShapeRule::kHiddenByFfn},
    {"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight", Part::kWhole, ShapeRule::kHidden},
    {"post_attention_layernorm.weight", "mlp.linear_fc1.layer_norm_weight", Part::kWhole, ShapeRule::kHidden},
}};

constexpr std::array<NameRule, 2> kAfter = {{
    {"model.norm.weight", "decoder.final_layernorm.weight", Part::kWhole, ShapeRule::kHidden},
    {kHfOutput, "output_layer.weight", Part::kWhole, ShapeRule::kVocabByHidden, Presence::kUntied},
}};

constexpr std::array<Family, 3> kFamilies = {{
    {"llama", "LlamaForCausalLM", false, false, 0, kBefore, kLayer, kAfter},
    {"qwen2", "Qwen2ForCausalLM", true, false, 0, kBefore, kLayer, kAfter},
    {"qwen3", "Qwen3ForCausalLM", false, true, 128, kBefore, kLayer, kAfter},
}};

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
    case ShapeRule::kFfnByHidden:
      return {2 * c.ffn_hidden_size, c.hidden_size};
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
  tensor.name = core::cat(hf_prefix, rule.hf);
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
  return tensor;
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& find_family(std::string_view model_type) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    known += core::cat(known.empty() ? "" : ", ", family.model_type);
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("model_type ", detail::printable(model_type), " is not supported; known: ", known));
}

const Family& family_of_model(const core::TransformerConfig& config) {
  for (const Family& family : kFamilies) {
    if (family.qkv_bias == config.add_qkv_bias && family.qk_layernorm == config.qk_layernorm) return family;
  }
  throw core::Error(
      core::ErrorCode::kUnsupported,
      "no Hugging Face family has both --add-qkv-bias and --qk-layernorm; the model cannot be written as one");
}

void for_each_tensor(const Family& family, const core::TransformerConfig& config,
                     const std::function<void(const MappedTensor&)>& visit) {
  const auto add = [&](std::span<const NameRule> rules, const std::string& hf, const std::string& canonical) {
    for (const NameRule& rule : rules) {
      if (present(rule.presence, config)) visit(map_tensor(rule, config, hf, canonical));
    }
  };
  add(family.before, "", "");
  for (int64_t i = 0; i < config.num_layers; ++i) {
    add(family.layer, core::cat("model.layers.", i, "."), core::cat("decoder.layers.", i, "."));
  }
  add(family.after, "", "");
}

bool is_ignored_buffer(std::string_view hf_name) { return hf_name.ends_with(".rotary_emb.inv_freq"); }

}  // namespace ms::convert
