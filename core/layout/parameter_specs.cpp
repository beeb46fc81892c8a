#include "core/layout/parameter_specs.h"

#include <charconv>
#include <utility>

#include "core/error.h"

namespace ms::layout {

using core::cat;
using core::Error;
using core::ErrorCode;

namespace {

// Lists the parameters of a model in order.
class SpecList {
 public:
  explicit SpecList(const core::TransformerConfig& config) : config_(config) {}

  std::vector<ParameterSpec> make() {
    const int64_t hidden = config_.hidden_size;
    const bool tied = !config_.untie_embeddings_and_output_weights;
    add("embedding.word_embeddings.weight", {config_.vocab_size, hidden}, TpRule::kVocabRows);
    specs_.back().is_tied_embedding = tied;
    specs_.back().has_copy_behind = tied || config_.mtp_num_layers > 0;
    if (config_.has_learned_positions()) {
      add("embedding.position_embeddings.weight", {config_.max_position_embeddings, hidden}, TpRule::kReplicated);
    }
    const std::vector<bool> with_experts = config_.layers_with_experts();
    if (static_cast<int64_t>(with_experts.size()) != config_.num_layers ||
        config_.mtp_num_layers > config_.num_layers) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat("--moe-layer-freq ", config_.moe_layer_freq, " and --mtp-num-layers ", config_.mtp_num_layers,
                      " do not match a model of ", config_.num_layers, " layers"));
    }
    for (layer_ = 0; layer_ < config_.num_layers; ++layer_) {
      prefix_ = cat("decoder.layers.", layer_, ".");
      add_layer(with_experts[static_cast<size_t>(layer_)]);
    }
    prefix_.clear();
    add_norm("decoder.final_layernorm.weight", "decoder.final_layernorm.bias", hidden);
    if (!tied) add("output_layer.weight", {config_.vocab_size, hidden}, TpRule::kVocabRows);
    for (int64_t k = 0; k < config_.mtp_num_layers; ++k) {  // megatron/core/transformer/multi_token_prediction.py
      const size_t first = specs_.size();
      prefix_ = cat("mtp.layers.", k, ".");
      add_norm("enorm.weight", "enorm.bias", hidden);
      add_norm("hnorm.weight", "hnorm.bias", hidden);
      add("eh_proj.weight", {hidden, 2 * hidden}, TpRule::kRows);
      prefix_ += "transformer_layer.";
      add_layer(with_experts.back());
      prefix_ = cat("mtp.layers.", k, ".");
      add_norm("final_layernorm.weight", "final_layernorm.bias", hidden);
      for (size_t i = first; i < specs_.size(); ++i) specs_[i].mtp_layer = k;
    }
    return std::move(specs_);
  }

 private:
  void add(std::string_view name, const core::Dims& shape, TpRule rule) {
    specs_.push_back({.key = cat(prefix_, name), .global_shape = shape, .rule = rule, .layer = layer_});
  }
  // weight, bias: names of a norm's parameters.
  void add_norm(std::string_view weight, std::string_view bias, int64_t size) {
    add(weight, {size}, TpRule::kReplicated);
    if (config_.has_layer_norm()) add(bias, {size}, TpRule::kReplicated);
  }

  void add_layer(bool has_experts) {
    const int64_t hidden = config_.hidden_size;
    if (config_.multi_latent_attention) {
      add_latent_attention();
    } else {
      add_attention();
    }
    if (config_.softmax_type == "learnable") {
      add("self_attention.core_attention.softmax_offset", {config_.num_attention_heads}, TpRule::kRows);
    }
    add("self_attention.linear_proj.weight", {hidden, config_.proj_columns()}, TpRule::kColumns);
    if (config_.has_dense_bias()) add("self_attention.linear_proj.bias", {hidden}, TpRule::kReplicated);
    if (config_.post_norm) add_norm("post_self_attn_layernorm.weight", "post_self_attn_layernorm.bias", hidden);
    if (has_experts) {
      add_experts();
    } else {
      add_mlp();
    }
    if (config_.post_norm) add_norm("post_mlp_layernorm.weight", "post_mlp_layernorm.bias", hidden);
  }

  void add_attention() {
    const int64_t hidden = config_.hidden_size;
    if (config_.pre_norm) {
      add_norm("self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.layer_norm_bias", hidden);
    }
    add("self_attention.linear_qkv.weight", {config_.qkv_rows(), hidden}, TpRule::kRows);
    if (config_.has_qkv_bias()) {
      add("self_attention.linear_qkv.bias", {config_.qkv_rows()}, TpRule::kRows);
    }
    if (!config_.qk_layernorm) return;
    add_norm("self_attention.q_layernorm.weight", "self_attention.q_layernorm.bias", config_.q_norm_size());
    add_norm("self_attention.k_layernorm.weight", "self_attention.k_layernorm.bias", config_.k_norm_size());
  }

  void add_latent_attention() {
    const int64_t hidden = config_.hidden_size, query_rank = config_.q_lora_rank, rank = config_.kv_lora_rank;
    const auto add_rank_norm = [&](const char* weight, const char* bias, int64_t size) {
      if (config_.qk_layernorm) add_norm(weight, bias, size);
    };
    add_norm("input_layernorm.weight", "input_layernorm.bias", hidden);
    if (query_rank > 0) {
      add("self_attention.linear_q_down_proj.weight", {query_rank, hidden}, TpRule::kReplicated);
      add_rank_norm("self_attention.linear_q_up_proj.layer_norm_weight",
                    "self_attention.linear_q_up_proj.layer_norm_bias", query_rank);
      add("self_attention.linear_q_up_proj.weight", {config_.latent_query_rows(), query_rank}, TpRule::kRows);
    } else {
      add("self_attention.linear_q_proj.weight", {config_.latent_query_rows(), hidden}, TpRule::kRows);
    }
    add("self_attention.linear_kv_down_proj.weight", {rank + config_.qk_pos_emb_head_dim, hidden}, TpRule::kReplicated);
    add_rank_norm("self_attention.linear_kv_up_proj.layer_norm_weight",
                  "self_attention.linear_kv_up_proj.layer_norm_bias", rank);
    add("self_attention.linear_kv_up_proj.weight", {config_.latent_key_value_rows(), rank}, TpRule::kRows);
  }

  void add_mlp() {
    const int64_t hidden = config_.hidden_size;
    if (config_.pre_norm) add_norm("mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.layer_norm_bias", hidden);
    add("mlp.linear_fc1.weight", {config_.fc1_rows(), hidden}, fc1_rule());
    if (config_.has_mlp_bias()) add("mlp.linear_fc1.bias", {config_.fc1_rows()}, fc1_rule());
    add("mlp.linear_fc2.weight", {hidden, config_.ffn_hidden_size}, TpRule::kColumns);
    if (config_.has_mlp_bias()) add("mlp.linear_fc2.bias", {hidden}, TpRule::kReplicated);
  }

  void add_experts() {
    const int64_t hidden = config_.hidden_size, experts = config_.num_experts;
    const int64_t shared = config_.moe_shared_expert_intermediate_size;
    add_norm("pre_mlp_layernorm.weight", "pre_mlp_layernorm.bias", hidden);
    add("mlp.router.weight", {experts, hidden}, TpRule::kReplicated);
    if (config_.moe_router_enable_expert_bias) {
      add("mlp.router.expert_bias", {experts}, TpRule::kReplicated);
      specs_.back().is_buffer = true;
    }
    for (int64_t expert = 0; expert < experts; ++expert) {
      const std::string name = cat("mlp.experts.local_experts.", expert);
      for (const bool first : {true, false}) {
        if (first) {
          add(cat(name, ".linear_fc1.weight"), {config_.expert_fc1_rows(), hidden}, fc1_rule());
        } else {
          add(cat(name, ".linear_fc2.weight"), {hidden, config_.moe_ffn_hidden_size}, TpRule::kColumns);
        }
        specs_.back().expert = expert;
        specs_.back().num_experts = experts;
      }
    }
    if (shared == 0) return;
    add("mlp.shared_experts.linear_fc1.weight", {config_.shared_expert_fc1_rows(), hidden}, fc1_rule());
    add("mlp.shared_experts.linear_fc2.weight", {hidden, shared}, TpRule::kColumns);
    if (config_.moe_shared_expert_gate) add("mlp.shared_experts.gate_weight", {1, hidden}, TpRule::kReplicated);
  }

  TpRule fc1_rule() const { return config_.gated() ? TpRule::kGatedRows : TpRule::kRows; }

  const core::TransformerConfig& config_;
  std::vector<ParameterSpec> specs_;
  int64_t layer_ = -1;
  std::string prefix_;
};

}  // namespace

std::vector<ParameterSpec> parameter_specs(const core::TransformerConfig& config) { return SpecList(config).make(); }

std::string layer_name(const core::TransformerConfig& config, int64_t layer) {
  if (layer < config.num_layers) return cat("decoder.layers.", layer);
  return cat("mtp.layers.", layer - config.num_layers, ".transformer_layer");
}

std::optional<ParameterSpec> parameter_spec_of(const std::string& key, std::span<const int64_t> global_shape,
                                               const core::TransformerConfig& config) {
  struct Rule {
    std::string_view name;  // after the layer's prefix
    TpRule rule;
  };
  const TpRule fc1_rule = config.gated() ? TpRule::kGatedRows : TpRule::kRows;
  // megatron/core/models/gpt/gpt_layer_specs.py, core/transformer/multi_latent_attention.py, core/transformer/moe.
  const Rule rules[] = {
      {"input_layernorm.weight", TpRule::kReplicated},
      {"pre_mlp_layernorm.weight", TpRule::kReplicated},
      {"self_attention.linear_q_proj.weight", TpRule::kRows},
      {"self_attention.linear_q_down_proj.weight", TpRule::kReplicated},
      {"self_attention.linear_q_up_proj.layer_norm_weight", TpRule::kReplicated},
      {"self_attention.linear_q_up_proj.weight", TpRule::kRows},
      {"self_attention.linear_kv_down_proj.weight", TpRule::kReplicated},
      {"self_attention.linear_kv_up_proj.layer_norm_weight", TpRule::kReplicated},
      {"self_attention.linear_kv_up_proj.weight", TpRule::kRows},
      {"self_attention.q_layernorm.weight", TpRule::kReplicated},
      {"self_attention.kv_layernorm.weight", TpRule::kReplicated},
      {"self_attention.linear_proj.weight", TpRule::kColumns},
      {"mlp.linear_fc1.layer_norm_weight", TpRule::kReplicated},
      {"mlp.linear_fc1.weight", fc1_rule},
      {"mlp.linear_fc2.weight", TpRule::kColumns},
      {"mlp.router.weight", TpRule::kReplicated},
      {"mlp.router.expert_bias", TpRule::kReplicated},
      {"mlp.shared_experts.gate_weight", TpRule::kReplicated},
      {"mlp.shared_experts.linear_fc1.weight", fc1_rule},
      {"mlp.shared_experts.linear_fc2.weight", TpRule::kColumns},
      {"linear_fc1.weight", fc1_rule},  // of an expert
      {"linear_fc2.weight", TpRule::kColumns},
      {"enorm.weight", TpRule::kReplicated},
      {"hnorm.weight", TpRule::kReplicated},
      {"eh_proj.weight", TpRule::kRows},
      {"final_layernorm.weight", TpRule::kReplicated},
  };
  std::string_view rest = key;
  const auto take = [&](std::string_view prefix) {
    const bool has = rest.substr(0, prefix.size()) == prefix;
    if (has) rest.remove_prefix(prefix.size());
    return has;
  };
  const auto take_number = [&]() -> int64_t {  // with the dot after it; -1 if there is none
    int64_t number = -1;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc() || end == rest.data() + rest.size() || *end != '.' || number < 0) return -1;
    rest.remove_prefix(static_cast<size_t>(end - rest.data()) + 1);
    return number;
  };
  ParameterSpec spec{key, {global_shape.begin(), global_shape.end()}};
  const bool mtp = take("mtp.layers.");
  if (!mtp && !take("decoder.layers.")) return std::nullopt;
  spec.layer = take_number();
  if (spec.layer < 0 || (!mtp && spec.layer >= config.num_layers)) return std::nullopt;
  if (mtp) {
    spec.mtp_layer = std::exchange(spec.layer, config.num_layers);
    take("transformer_layer.");
  }
  if (take("mlp.experts.local_experts.") && (spec.expert = take_number()) < 0) return std::nullopt;
  for (const Rule& rule : rules) {
    if (rule.name != rest || (spec.expert >= 0) != (rest.rfind("linear_fc", 0) == 0)) continue;
    spec.rule = rule.rule;
    const size_t axes = rule.rule == TpRule::kReplicated ? spec.global_shape.size() : 2;
    return spec.global_shape.size() == axes ? std::optional(std::move(spec)) : std::nullopt;
  }
  return std::nullopt;
}

ParameterSpec passthrough_spec(std::string key, std::span<const int64_t> global_shape) {
  return {.key = std::move(key),
          .global_shape = {global_shape.begin(), global_shape.end()},
          .is_buffer = true,
          .layer = -1};
}

}  // namespace ms::layout
