#include "convert/family.h"

#include <algorithm>
#include <array>

#include "convert/detail/printable.h"
#include "convert/families/families.h"
#include "convert/huggingface_config.h"
#include "core/error.h"

namespace ms::convert {
namespace {

// In the order in which they are tried for a model without a config.json.
constexpr std::array<const Family*, 25> kFamilies = {
    &kLlama,    &kMistral,  &kQwen2,      &kQwen3,      &kPhi3,       &kGemma2,   &kGlm,   &kGlm4,    &kMixtral,
    &kQwen2Moe, &kQwen3Moe, &kGlm4Moe,    &kDeepseekV2, &kDeepseekV3, &kGpt2,     &kOlmo2, &kGranite, &kSmolLm3,
    &kErnie45,  &kGptNeox,  &kStarcoder2, &kGemma3Text, &kInternLm2,  &kNemotron, &kOlmoe};

// Returns the model as reading back the family's config.json would give it.
core::TransformerConfig as_read_back(const Family& family, const core::TransformerConfig& model) {
  core::TransformerConfig told;
  apply_structure(family, told);
  for (const ConfigKey& key : family.keys) {
    std::visit([&](auto member) { told.*member = model.*member; }, key.field);
    auto* const flag = std::get_if<bool core::TransformerConfig::*>(&key.field);
    if (flag == nullptr) continue;
    // Of several flags under one key the last is written.
    for (const ConfigKey& other : family.keys) {
      if (other.hf == key.hf) told.*(*flag) = flag_of(model, std::get<bool core::TransformerConfig::*>(other.field));
    }
  }
  told.num_attention_heads = model.num_attention_heads;
  if (!family.groups_key.empty()) {
    told.num_query_groups = model.num_query_groups;
    told.group_query_attention = model.group_query_attention;
  }
  if (told.kv_channels == 0) told.kv_channels = told.hidden_size / told.num_attention_heads;
  told.moe_layer_freq = model.moe_layer_freq;
  if (!family.shared_experts_key.empty() && model.moe_ffn_hidden_size > 0 &&
      model.moe_shared_expert_intermediate_size % model.moe_ffn_hidden_size == 0) {
    told.moe_shared_expert_intermediate_size = model.moe_shared_expert_intermediate_size;
  }
  if (!family.mtp_key.empty()) told.mtp_num_layers = model.mtp_num_layers;
  told.resolve(told.max_position_embeddings);
  told.untie_embeddings_and_output_weights = model.untie_embeddings_and_output_weights;
  if (!told.gated()) told.bias_gelu_fusion = model.bias_gelu_fusion;
  if (!family.window_pattern_key.empty()) told.window_attn_skip_freq = model.window_attn_skip_freq;
  if (!told.has_rotary_embedding()) return told;
  if (!family.rope_layers_key.empty()) told.no_rope_freq = model.no_rope_freq;
  if (family.default_rotary_base_local > 0) told.rotary_base_local = model.rotary_base_local;
  if (family.default_partial_rotary) told.rotary_percent = model.rotary_percent;
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    const std::string_view field = name;
    if (field == "rotary_base" || field.starts_with("rope_scaling_")) told.*member = model.*member;
  });
  return told;
}

// The name of a parameter outside the layers; "" if the family has no rule for it.
std::string_view name_of(const Family& family, std::string_view canonical) {
  for (const std::span<const NameRule> rules : {family.before, family.after}) {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const NameRule& each) { return each.canonical == canonical; });
    if (rule != rules.end()) return rule->hf;
  }
  return "";
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

std::string_view embedding_name(const Family& family) { return name_of(family, kWordEmbeddings); }
std::string_view output_name(const Family& family) { return name_of(family, kOutputLayer); }

bool flag_of(const core::TransformerConfig& model, bool core::TransformerConfig::*field) {
  using C = core::TransformerConfig;
  if (field == &C::add_qkv_bias) return model.has_qkv_bias();
  if (field == &C::add_dense_bias) return model.has_dense_bias();
  if (field == &C::add_mlp_bias) return model.has_mlp_bias();
  return model.*field;
}

void apply_structure(const Family& family, core::TransformerConfig& model) {
  for (const FixedField& fixed : family.structure) {
    std::visit([&](const auto& to) { model.*(to.field) = to.value; }, fixed.to);
  }
}

const Family& find_family(std::string_view model_type) {
  std::string known;
  for (const Family* family : kFamilies) {
    if (family->model_type == model_type) return *family;
    known += core::cat(known.empty() ? "" : ", ", family->model_type);
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("model_type ", detail::printable(model_type), " is not known; known: ", known,
                              ". --name-map FILE defines the tensors and keys of another family (msckpt families "
                              "--explain NAME prints one to start from); msckpt convert --as-named keeps tensor "
                              "names, for any model"));
}

bool can_express(const Family& family, const core::TransformerConfig& config) {
  return lost_by(family, config).empty();
}

std::string lost_by(const Family& family, const core::TransformerConfig& config) {
  if (!can_express_layers(family, config)) return "its layers with experts";
  return model_differences(config, as_read_back(family, config));
}

const Family& family_of_model(const core::TransformerConfig& config) {
  for (const Family* family : kFamilies) {
    if (can_express(*family, config)) return *family;
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("no known Hugging Face family can express this model: no family has its combination of ",
                              config.has_experts() ? "experts, router, " : "",
                              "norms, activation, biases, positions, windows and softmax (msckpt inspect --json shows "
                              "them); llama, for example, lacks ",
                              lost_by(kLlama, config)));
}

}  // namespace ms::convert
