#include "convert/gguf/architecture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TransformerConfig;

struct Architecture {
  std::string_view model_type, name;
};
constexpr Architecture kArchitectures[] = {{"llama", "llama"},        {"mistral", "llama"},     {"qwen2", "qwen2"},
                                           {"qwen3", "qwen3"},        {"gemma2", "gemma2"},     {"phi3", "phi3"},
                                           {"glm4", "glm4"},          {"gpt2", "gpt2"},         {"mixtral", "llama"},
                                           {"qwen2_moe", "qwen2moe"}, {"qwen3_moe", "qwen3moe"}};

using Name = std::pair<std::string_view, std::string_view>;  // (transformers' name, llama.cpp's name)
// Outside layers, without the family's prefix.
constexpr Name kOutside[] = {{"embed_tokens", "token_embd"}, {"norm", "output_norm"},  {"lm_head", "output"},
                             {"wte", "token_embd"},          {"wpe", "position_embd"}, {"ln_f", "output_norm"}};
constexpr Name kInLayers[] = {{"input_layernorm", "attn_norm"},
                              {"self_attn.q_proj", "attn_q"},
                              {"self_attn.k_proj", "attn_k"},
                              {"self_attn.v_proj", "attn_v"},
                              {"self_attn.qkv_proj", "attn_qkv"},
                              {"self_attn.o_proj", "attn_output"},
                              {"self_attn.q_norm", "attn_q_norm"},
                              {"self_attn.k_norm", "attn_k_norm"},
                              {"mlp.gate_proj", "ffn_gate"},
                              {"mlp.up_proj", "ffn_up"},
                              {"mlp.gate_up_proj", "ffn_up"},
                              {"mlp.down_proj", "ffn_down"},
                              {"block_sparse_moe.gate", "ffn_gate_inp"},
                              {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                              {"block_sparse_moe.experts.w2", "ffn_down_exps"},
                              {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                              {"mlp.gate", "ffn_gate_inp"},
                              {"mlp.experts.gate_proj", "ffn_gate_exps"},
                              {"mlp.experts.down_proj", "ffn_down_exps"},
                              {"mlp.experts.up_proj", "ffn_up_exps"},
                              {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                              {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                              {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                              {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                              {"ln_1", "attn_norm"},
                              {"attn.c_attn", "attn_qkv"},
                              {"attn.c_proj", "attn_output"},
                              {"ln_2", "ffn_norm"},
                              {"mlp.c_fc", "ffn_up"},
                              {"mlp.c_proj", "ffn_down"}};
// Norms whose names have another meaning in other families.
constexpr Name kNorms[] = {{"post_attention_layernorm", "ffn_norm"}};
constexpr Name kGemma2Norms[] = {{"post_attention_layernorm", "post_attention_norm"},
                                 {"pre_feedforward_layernorm", "ffn_norm"},
                                 {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr Name kGlm4Norms[] = {{"post_self_attn_layernorm", "post_attention_norm"},
                               {"post_attention_layernorm", "ffn_norm"},
                               {"post_mlp_layernorm", "post_ffw_norm"}};

std::span<const Name> norms_of(const Family& family) {
  if (family.model_type == "gemma2") return kGemma2Norms;
  if (family.model_type == "glm4") return kGlm4Norms;
  return kNorms;
}

std::string_view find(std::span<const Name> names, std::string_view wanted) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.first == wanted; });
  return found == names.end() ? std::string_view() : found->second;
}

[[noreturn]] void refuse(const auto&... parts) {
  throw Error(ErrorCode::kUnsupported, cat("gguf: ", parts..., ", which llama.cpp cannot compute"));
}

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

}  // namespace

std::string_view gguf_architecture(const Family& family, const TransformerConfig& model) {
  const auto found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                  [&](const Architecture& one) { return one.model_type == family.model_type; });
  if (found == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture& one : kArchitectures) known += cat(known.empty() ? "" : ", ", one.model_type);
    throw Error(ErrorCode::kUnsupported, cat("gguf: a ", family.model_type, " model; supported families: ", known));
  }
  if ((model.has_dense_bias() || model.has_mlp_bias()) && found->name != "llama" && found->name != "gpt2") {
    refuse(family.model_type, " with biases of o_proj or the MLP");
  }
  if (model.rope_scaling_type == "dynamic") refuse("rope_scaling_type dynamic");
  if (model.rope_scaling_type == "longrope") {
    throw Error(ErrorCode::kUnsupported, "gguf: rope_scaling_type longrope is not supported yet");
  }
  // llama.cpp decides by the number of layers: only Gemma 2 27B has a scale other than the head size.
  const bool of_27b =
      model.num_layers == 46 && model.query_pre_attn_scalar * static_cast<double>(model.num_attention_heads) ==
                                    static_cast<double>(model.hidden_size);
  if (model.query_pre_attn_scalar != 0 && model.query_pre_attn_scalar != static_cast<double>(model.kv_channels) &&
      !of_27b) {
    refuse("query_pre_attn_scalar ", model.query_pre_attn_scalar, " with heads of ", model.kv_channels);
  }
  if (model.has_experts()) {
    const std::vector<bool> layers = model.layers_with_experts();
    if (std::find(layers.begin(), layers.end(), false) != layers.end()) {
      refuse(family.model_type, " with layers without experts");
    }
    // In llama.cpp the architecture determines whether the chosen experts' weights are normalized to 1.
    if (model.moe_router_pre_softmax != (found->name == "qwen2moe")) {
      refuse("norm_topk_prob ", model.moe_router_pre_softmax ? "false" : "true", " of a ", family.model_type, " model");
    }
  }
  return found->name;
}

std::string gguf_tensor_name(const Family& family, std::string_view hf_name) {
  std::string_view rest = hf_name;
  if (rest.starts_with(family.prefix)) rest.remove_prefix(family.prefix.size());
  std::string layer;
  if (rest.starts_with(family.layers)) {
    rest.remove_prefix(family.layers.size());
    layer = std::string(rest.substr(0, rest.find('.')));
    rest.remove_prefix(layer.size() + 1);
  }
  const size_t dot = rest.rfind('.');
  const std::string_view kind = rest.substr(dot);
  std::string base(rest.substr(0, dot));
  constexpr std::string_view kExperts = "experts.";
  if (const size_t at = base.find(kExperts); at != std::string::npos) {  // all experts of a layer are in one tensor
    const size_t index = at + kExperts.size();
    base.erase(index, base.find('.', index) + 1 - index);
  }
  std::string_view name = layer.empty() ? find(kOutside, base) : find(norms_of(family), base);
  if (name.empty() && !layer.empty()) name = find(kInLayers, base);
  MS_CHECK(!name.empty(), "no name in gguf for ", hf_name);
  return layer.empty() ? cat(name, kind) : cat("blk.", layer, ".", name, kind);
}

bool gguf_permutes_heads(std::string_view architecture, std::string_view gguf_name) {
  return architecture == "llama" &&
         (gguf_name.find(".attn_q.") != std::string_view::npos || gguf_name.find(".attn_k.") != std::string_view::npos);
}

GgufPart gguf_part(const Family& family, const TransformerConfig& model, const MappedTensor& mapped) {
  GgufPart part{gguf_tensor_name(family, mapped.name), {mapped.shape.begin(), mapped.shape.end()}};
  if (mapped.transposed) std::reverse(part.shape.begin(), part.shape.end());
  if (part.shape.size() == 2 && part.shape[0] == 1) part.shape.erase(part.shape.begin());
  if (part.shape.size() == 2) part.columns = part.shape[1];
  if (gguf_permutes_heads(gguf_architecture(family, model), part.tensor)) part.head_rows = model.kv_channels;
  part.plus_one = part.tensor.ends_with("norm.weight") && model.apply_layernorm_1p;
  return part;
}

void add_gguf_model(std::string_view architecture, const TransformerConfig& model, GgufValues& values,
                    std::vector<std::string>& decisions) {
  const auto key = [&](std::string_view name) { return cat(architecture, ".", name); };
  values.set(key("block_count"), u32(model.num_layers));
  values.set(key("context_length"), u32(model.max_position_embeddings));
  values.set(key("embedding_length"), u32(model.hidden_size));
  values.set(key("feed_forward_length"), u32(model.ffn_hidden_size));
  values.set(key("attention.head_count"), u32(model.num_attention_heads));
  values.set(key("vocab_size"), u32(model.vocab_size));
  const char* epsilon = model.has_layer_norm() ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  values.set(key(epsilon), static_cast<float>(model.norm_epsilon));
  if (model.has_experts()) {
    values.set(key("expert_count"), u32(model.num_experts));
    values.set(key("expert_used_count"), u32(model.moe_router_topk));
  }
  if (architecture == "qwen2moe" || architecture == "qwen3moe") {
    values.set(key("expert_feed_forward_length"), u32(model.moe_ffn_hidden_size));
  }
  if (model.moe_shared_expert_intermediate_size > 0) {
    values.set(key("expert_shared_feed_forward_length"), u32(model.moe_shared_expert_intermediate_size));
  }
  if (!model.has_rotary_embedding()) return;
  values.set(key("attention.head_count_kv"), u32(model.query_groups()));
  values.set(key("attention.key_length"), u32(model.kv_channels));
  values.set(key("attention.value_length"), u32(model.kv_channels));
  values.set(key("rope.dimension_count"), u32(model.rotary_dim()));
  values.set(key("rope.freq_base"), static_cast<float>(model.rotary_base));
  if (model.rope_scaling_type == "linear" || model.rope_scaling_type == "yarn") {
    values.set(key("rope.scaling.type"), std::string_view(model.rope_scaling_type));
    values.set(key("rope.scaling.factor"), static_cast<float>(model.rope_scaling_factor));
  }
  if (model.rope_scaling_type == "yarn") {
    const int64_t original = model.rope_scaling_original_max_position_embeddings;
    values.set(key("rope.scaling.original_context_length"),
               u32(original > 0 ? original : model.max_position_embeddings));
    values.set(key("rope.scaling.yarn_beta_fast"), static_cast<float>(model.rope_scaling_beta_fast));
    values.set(key("rope.scaling.yarn_beta_slow"), static_cast<float>(model.rope_scaling_beta_slow));
    if (model.rope_scaling_attention_factor != 0 || model.rope_scaling_mscale != 0) {
      decisions.push_back("yarn's attention factor is left out: llama.cpp uses 0.1 ln(factor) + 1");
    }
  }
  if (architecture == "phi3") {
    const int64_t original = model.rope_scaling_original_max_position_embeddings;
    values.set(key("rope.scaling.original_context_length"),
               u32(original > 0 ? original : model.max_position_embeddings));
  }
  if (model.attn_logit_softcapping != 0) {
    values.set(key("attn_logit_softcapping"), static_cast<float>(model.attn_logit_softcapping));
  }
  if (model.output_logit_softcapping != 0) {
    values.set(key("final_logit_softcapping"), static_cast<float>(model.output_logit_softcapping));
  }
  const int64_t window = std::max(model.sliding_window, model.interleave_sliding_window);
  if (architecture == "gemma2" || architecture == "phi3") {
    values.set(key("attention.sliding_window"), u32(window));
  } else if (window > 0) {
    decisions.push_back(cat("the sliding window of ", window, " is left out: llama.cpp has none in ", architecture,
                            " models, and its results differ for longer texts"));
  }
}

bool gguf_is_exact(std::string_view gguf_name) {
  return gguf_name.starts_with("position_embd") || gguf_name.ends_with(".ffn_gate_inp.weight");
}

std::vector<float> gguf_rope_factors(const TransformerConfig& model) {
  std::vector<float> factors;
  if (!model.has_rotary_embedding() || model.rope_scaling_type != "llama3") return factors;
  const int64_t said = model.rope_scaling_original_max_position_embeddings;
  const auto original = static_cast<double>(said > 0 ? said : model.max_position_embeddings);
  const double low = model.rope_scaling_low_freq_factor, high = model.rope_scaling_high_freq_factor;
  for (int64_t i = 0; i < model.rotary_dim(); i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(model.rotary_dim());
    const double wavelength = 2 * std::numbers::pi * std::pow(model.rotary_base, exponent);
    double factor = model.rope_scaling_factor;
    if (wavelength < original / high) {
      factor = 1;
    } else if (wavelength <= original / low) {
      const double smooth = (original / wavelength - low) / (high - low);
      factor = 1 / ((1 - smooth) / model.rope_scaling_factor + smooth);
    }
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

}  // namespace ms::convert
