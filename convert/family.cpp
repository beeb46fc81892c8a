#include "convert/family.h"

#include <algorithm>
#include <array>

#include "convert/detail/printable.h"
#include "convert/families/families.h"
#include "convert/huggingface_config.h"
#include "core/error.h"

namespace ms::convert {
namespace {

// In the order in which a model without a config.json is offered to them.
constexpr std::array<const Family*, 15> kFamilies = {&kLlama,    &kMistral, &kQwen2,      &kQwen3,      &kPhi3,
                                                     &kGemma2,   &kGlm,     &kGlm4,       &kMixtral,    &kQwen2Moe,
                                                     &kQwen3Moe, &kGlm4Moe, &kDeepseekV2, &kDeepseekV3, &kGpt2};

// The model as the family's config.json would give it back.
core::TransformerConfig as_told_by(const Family& family, const core::TransformerConfig& model) {
  core::TransformerConfig told;
  family.fix(told);
  for (const ConfigKey& key : family.keys) {
    std::visit([&](auto member) { told.*member = model.*member; }, key.field);
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
  if (!told.has_rotary_embedding()) return told;
  if (family.default_partial_rotary) told.rotary_percent = model.rotary_percent;
  core::TransformerConfig::fields([&](const char* name, auto member, const char*) {
    const std::string_view field = name;
    if (field == "rotary_base" || field.starts_with("rope_scaling_")) told.*member = model.*member;
  });
  return told;
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

std::string_view embedding_name(const Family& family) {
  const auto rule = std::find_if(family.before.begin(), family.before.end(),
                                 [](const NameRule& each) { return each.canonical == kWordEmbeddings; });
  return rule->hf;
}

const Family& find_family(std::string_view model_type) {
  std::string known;
  for (const Family* family : kFamilies) {
    if (family->model_type == model_type) return *family;
    known += core::cat(known.empty() ? "" : ", ", family->model_type);
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    core::cat("model_type ", detail::printable(model_type), " is not supported; known: ", known));
}

bool can_say(const Family& family, const core::TransformerConfig& config) {
  return can_say_layers(family, config) && same_model(as_told_by(family, config), config);
}

const Family& family_of_model(const core::TransformerConfig& config) {
  for (const Family* family : kFamilies) {
    if (can_say(*family, config)) return *family;
  }
  throw core::Error(core::ErrorCode::kUnsupported,
                    "no Hugging Face family that we know can say what this model is: its norms, activation, biases, "
                    "positions and windows (msckpt inspect shows them) do not go together in any");
}

}  // namespace ms::convert
