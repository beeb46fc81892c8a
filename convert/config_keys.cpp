#include "convert/config_keys.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "convert/detail/printable.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using nlohmann::json;
using C = core::TransformerConfig;

// Formats a value as one line of JSON and truncates it.
std::string shown(const json& value) {
  const std::string quoted = detail::printable(value.dump());
  return quoted.substr(1, quoted.size() - 2);
}

// Keys that do not affect logits: those of transformers' PreTrainedConfig and GenerationConfig, file history, runtime
// settings, training losses and dropouts.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_commit_hash",
                                          "_name_or_path",
                                          "add_bos_token",
                                          "add_cross_attention",
                                          "add_eos_token",
                                          "architectures",
                                          "attn_implementation",
                                          "attn_pdrop",
                                          "attention_dropout",
                                          "auto_map",
                                          "aux_loss_alpha",
                                          "auxiliary_loss_weight",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "classifier_dropout",
                                          "cross_attention_hidden_size",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "embd_pdrop",
                                          "embedding_dropout",
                                          "encoder_no_repeat_ngram_size",
                                          "eos_token_id",
                                          "ep_size",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "hidden_dropout",
                                          "hidden_dropout_prob",
                                          "id2label",
                                          "image_token_id",
                                          "image_token_index",
                                          "init_std",
                                          "initializer_range",
                                          "is_composition",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "is_llama_config",
                                          "keys_to_ignore_at_inference",
                                          "label2id",
                                          "length_penalty",
                                          "license",
                                          "loss_type",
                                          "max_length",
                                          "max_window_layers",
                                          "min_length",
                                          "model_type",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_labels",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_router_logits",
                                          "output_scores",
                                          "pad_token_id",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "pruned_heads",
                                          "quantization",
                                          "reduction",
                                          "remove_invalid_values",
                                          "reorder_and_upcast_attn",
                                          "repetition_penalty",
                                          "resid_pdrop",
                                          "residual_dropout",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "router_aux_loss_coef",
                                          "router_jitter_noise",
                                          "router_z_loss_coef",
                                          "sep_token_id",
                                          "seq_aux",
                                          "seq_length",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tie_encoder_decoder",
                                          "tie_word_embeddings",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers.js_config",
                                          "transformers_version",
                                          "typical_p",
                                          "unk_token_id",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache",
                                          "use_cache_quantization",
                                          "use_cache_kernel",
                                          "use_flash_attn",
                                          "use_flash_attention_2",
                                          "use_return_dict",
                                          "video_token_id"};

bool is_number(const json& value, double wanted) {
  return value.is_number() && std::abs(value.get<double>() - wanted) <= 1e-12 * std::abs(wanted);
}

bool is_off(const json& value) { return value == false || value == 0 || (value.is_array() && value.empty()); }

double softmax_scale(const C& model) {
  if (model.softmax_scale > 0) return model.softmax_scale;
  const double scalar = model.query_pre_attn_scalar;
  return 1 / std::sqrt(scalar > 0 ? scalar : static_cast<double>(model.kv_channels));
}

bool has_activation(const json& value, const C& model) {
  const std::string_view seen = value.is_string() ? activation_of(value.get_ref<const std::string&>()) : "";
  if (model.swiglu) return seen == "silu";
  if (model.squared_relu) return seen == "relu2";
  const bool by_tanh = model.gelu_tanh || (!model.gated() && model.bias_gelu_fusion);
  return seen == (by_tanh ? "gelu_tanh" : "gelu");
}

bool all_have_rope(const json& value, const C& model) {
  if (is_off(value)) return true;
  const std::vector<bool> layers = model.layers_with_rope();
  return value.is_array() && value.size() >= layers.size() &&
         std::equal(layers.begin(), layers.end(), value.begin(),
                    [](bool has, const json& said) { return said == (has ? 1 : 0); });
}

// A key that changes what a model computes, with a test whether its value agrees with `model`.
struct Meaning {
  std::string_view key;
  bool (*is_met)(const json& value, const C& model);
};

constexpr auto kIsOne = [](const json& value, const C&) { return is_number(value, 1); };
constexpr auto kIsOff = [](const json& value, const C&) { return is_off(value); };
constexpr auto kIsOn = [](const json& value, const C&) { return value == true; };
constexpr auto kBiases = [](const json& value, const C& model) { return value == model.add_bias_linear; };
constexpr auto kQkvBiases = [](const json& value, const C& model) { return value == model.has_qkv_bias(); };
constexpr auto kMlpBiases = [](const json& value, const C& model) { return value == model.has_mlp_bias(); };
// The whole of a head in transformers' files, without what is rotated in Megatron's arguments.
constexpr auto kLatentHead = [](const json& value, const C& model) {
  return is_number(value, static_cast<double>(model.qk_head_dim + model.qk_pos_emb_head_dim)) ||
         is_number(value, static_cast<double>(model.qk_head_dim));
};
constexpr auto kEpsilon = [](const json& value, const C& model) { return is_number(value, model.norm_epsilon); };
constexpr auto kHasActivation = [](const json& value, const C& model) { return has_activation(value, model); };
constexpr auto kRotaryShare = [](const json& value, const C& model) { return is_number(value, model.rotary_percent); };
constexpr auto kRotaryBase = [](const json& value, const C& model) {
  return !model.has_rotary_embedding() || is_number(value, model.rotary_base);
};
constexpr auto kInterleaved = [](const json& value, const C& model) { return value == model.rotary_interleaved; };
constexpr auto kNoExperts = [](const json& value, const C& model) { return model.has_experts() || is_off(value); };
constexpr auto kQkNorm = [](const json& value, const C& model) { return value == model.qk_layernorm; };
constexpr auto kParallel = [](const json& value, const C& model) { return value == model.parallel_residual; };

constexpr Meaning kMeanings[] = {
    {"embedding_multiplier", kIsOne},
    {"residual_multiplier", kIsOne},
    {"logits_scaling", kIsOne},
    {"logit_scale", kIsOne},
    {"scale_emb", kIsOne},
    {"lm_head_multiplier", kIsOne},
    {"key_multiplier", kIsOne},
    {"attention_in_multiplier", kIsOne},
    {"attention_out_multiplier", kIsOne},
    {"attention_multiplier", [](const json& value, const C& model) { return is_number(value, softmax_scale(model)); }},
    {"query_pre_attn_scalar",
     [](const json& value, const C& model) {
       return value.is_number() && is_number(1 / std::sqrt(value.get<double>()), softmax_scale(model));
     }},
    {"scale_depth", kIsOff},
    {"dim_model_base", kIsOff},
    {"attn_logit_softcapping", kIsOff},
    {"final_logit_softcapping", kIsOff},
    {"logits_soft_cap", kIsOff},
    {"clip_qkv", kIsOff},
    {"alibi", kIsOff},
    {"use_alibi", kIsOff},
    {"use_bidirectional_attention", kIsOff},
    {"scale_attn_by_inverse_layer_idx", kIsOff},
    {"scale_attn_weights", kIsOn},
    {"is_causal", kIsOn},
    {"attention_bias", kQkvBiases},
    {"qkv_bias", kQkvBiases},
    {"use_qkv_bias", kQkvBiases},
    {"mlp_bias", kMlpBiases},
    {"use_bias", kBiases},
    {"bias", kBiases},
    {"add_bias", kBiases},
    {"use_qk_norm", kQkNorm},
    {"qk_layernorm", kQkNorm},
    {"use_parallel_residual", kParallel},
    {"parallel_attn", kParallel},
    {"rms_norm_eps", kEpsilon},
    {"qk_head_dim", kLatentHead},
    {"layer_norm_eps", kEpsilon},
    {"layer_norm_epsilon", kEpsilon},
    {"layernorm_epsilon", kEpsilon},
    {"norm_epsilon", kEpsilon},
    {"norm_eps", kEpsilon},
    {"hidden_act", kHasActivation},
    {"hidden_activation", kHasActivation},
    {"activation_function", kHasActivation},
    {"head_dim",
     [](const json& value, const C& model) {
       return model.multi_latent_attention || is_number(value, static_cast<double>(model.kv_channels));
     }},
    {"num_key_value_heads",
     [](const json& value, const C& model) {
       return model.multi_latent_attention || is_number(value, static_cast<double>(model.query_groups()));
     }},
    {"partial_rotary_factor", kRotaryShare},
    {"rotary_pct", kRotaryShare},
    {"rope_theta", kRotaryBase},
    {"rotary_emb_base", kRotaryBase},
    {"rope_scaling", kIsOff},
    {"rope_parameters", kIsOff},
    {"rope_local_base_freq",
     [](const json& value, const C& model) { return is_number(value, model.rotary_base_local); }},
    {"rope_interleave", kInterleaved},
    {"rope_interleaved", kInterleaved},
    {"no_rope_layers", all_have_rope},
    {"no_rope_layer_interval", kIsOff},  // unless the list exists, see below
    {"sliding_window", kIsOff},          // unless use_sliding_window is false, see below
    {"use_sliding_window", kIsOff},
    {"sliding_window_pattern", kIsOff},
    {"num_experts", kNoExperts},
    {"num_local_experts", kNoExperts},
    {"n_routed_experts", kNoExperts},
    {"kv_lora_rank", kIsOff},
    {"q_lora_rank", kIsOff},
};

}  // namespace

std::string_view activation_of(std::string_view name) {
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu_tanh";
  return name == "gelu" || name == "relu2" ? name : "";
}

const json* ConfigKeys::find(std::string_view key) const {
  read_.emplace(key);
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

int64_t ConfigKeys::size(std::string_view key, std::optional<int64_t> absent, int64_t most, int64_t least) const {
  const json* value = find(key);
  if (value == nullptr && absent) return *absent;
  if (value == nullptr) fail(ErrorCode::kCorruptData, key, "is missing");
  if (!value->is_number_integer() || *value < least || *value > most) {
    fail(ErrorCode::kCorruptData, key,
         cat("is ", shown(*value), "; expected a whole number from ", least, " to ", most));
  }
  return value->get<int64_t>();
}

double ConfigKeys::number(std::string_view key, double absent, bool may_be_zero) const {
  const json* value = find(key);
  if (value == nullptr) return absent;
  const double seen = value->is_number() ? value->get<double>() : -1;
  if (!std::isfinite(seen) || seen < 0 || (seen == 0 && !may_be_zero)) {
    fail(ErrorCode::kCorruptData, key, cat("is ", shown(*value), "; expected a positive number"));
  }
  return seen;
}

bool ConfigKeys::flag(std::string_view key, bool absent) const {
  const json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) fail(ErrorCode::kCorruptData, key, cat("is ", shown(*value), "; expected true or false"));
  return value->get<bool>();
}

std::string ConfigKeys::text(std::string_view key, const std::string& absent) const {
  const json* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) fail(ErrorCode::kCorruptData, key, cat("is ", shown(*value), "; expected a string"));
  return value->get<std::string>();
}

bool ConfigKeys::has_null(std::string_view key) const {
  read_.emplace(key);
  const auto at = object_.find(key);
  return at != object_.end() && at->is_null();
}

void ConfigKeys::fail(ErrorCode code, std::string_view key, const std::string& what) const {
  throw Error(code, cat(where_, ": ", key, " ", what));
}

void ConfigKeys::unsupported(std::string_view key) const {
  fail(ErrorCode::kUnsupported, key, cat("is ", shown(object_.at(std::string(key))), ", which is not supported"));
}

std::vector<std::string> ConfigKeys::unused(const C& model, std::span<const std::string_view> harmless) const {
  std::vector<std::string> keys;
  const auto is_in = [](std::span<const std::string_view> list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  const bool no_windows = object_.contains("use_sliding_window") && object_["use_sliding_window"] == false;
  for (const auto& item : object_.items()) {
    const std::string& key = item.key();
    const json& value = item.value();
    if (value.is_null() || read_.contains(key) || is_in(kHarmless, key) || is_in(harmless, key)) continue;
    if (key.starts_with("summary_")) continue;  // GPT-2's other heads
    const auto meaning =
        std::find_if(std::begin(kMeanings), std::end(kMeanings), [&](const Meaning& each) { return each.key == key; });
    if (meaning == std::end(kMeanings)) {
      keys.push_back(key);
      continue;
    }
    if (key == "sliding_window" && no_windows) continue;
    if (key == "no_rope_layer_interval" && object_.contains("no_rope_layers")) continue;
    if (meaning->is_met(value, model)) continue;
    fail(ErrorCode::kUnsupported, key,
         cat("is ", shown(value),
             ", which changes what the model computes, but its family does not read that key; a --name-map can map it "
             "to a field (\"config\")"));
  }
  return keys;
}

}  // namespace ms::convert
