// What TransformerConfig::validate refuses: sizes, layers, experts, latent attention, rotary embedding.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/transformer_config.h"
#include "core/transformer_limits.h"

namespace ms::core {
namespace {

// num_parameters in double, which cannot wrap, without parameters that are negligible beside a matrix.
double about_num_parameters(const TransformerConfig& c) {
  const auto hidden = static_cast<double>(c.hidden_size);
  const double heads = static_cast<double>(c.num_attention_heads) + static_cast<double>(c.query_groups());
  const double experts = static_cast<double>(c.num_experts) * static_cast<double>(c.moe_ffn_hidden_size) +
                         static_cast<double>(c.moe_shared_expert_intermediate_size);
  const double latent = static_cast<double>(c.num_attention_heads) *
                        (static_cast<double>(c.qk_head_dim) + static_cast<double>(c.v_head_dim)) *
                        (static_cast<double>(c.q_lora_rank) + static_cast<double>(c.kv_lora_rank));
  const double layer = hidden * (2 * heads * static_cast<double>(c.kv_channels) +
                                 (c.gated() ? 3 : 2) * (static_cast<double>(c.ffn_hidden_size) + experts)) +
                       latent;
  return (static_cast<double>(c.num_layers) + static_cast<double>(c.mtp_num_layers)) * layer +
         hidden * (2 * static_cast<double>(c.vocab_size) + static_cast<double>(c.max_position_embeddings));
}

}  // namespace

void TransformerConfig::validate() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  const auto positive = [&](int64_t value, const char* flag, int64_t most = kMaxModelSize) {
    if (value <= 0) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": give a positive number");
    if (value > most) refuse(ErrorCode::kInvalidArgument, flag, " is ", value, ": at most ", most);
  };
  positive(num_layers, "--num-layers", kMaxModelLayers);
  positive(hidden_size, "--hidden-size");
  positive(num_attention_heads, "--num-attention-heads");
  if (kv_channels == 0 && hidden_size % num_attention_heads != 0) {
    refuse(ErrorCode::kInvalidArgument, "--hidden-size ", hidden_size, " is not a multiple of --num-attention-heads ",
           num_attention_heads, ": change one of them, or give the head size with --kv-channels");
  }
  positive(kv_channels, "--kv-channels");
  positive(ffn_hidden_size, "--ffn-hidden-size");
  positive(query_groups(), "--num-query-groups");
  positive(make_vocab_size_divisible_by, "--make-vocab-size-divisible-by");
  positive(vocab_size, "--vocab-size");
  if (max_position_embeddings < 0 || max_position_embeddings > kMaxModelSize) {
    refuse(ErrorCode::kInvalidArgument, "--max-position-embeddings is ", max_position_embeddings, ": expected 0 to ",
           kMaxModelSize);
  }
  if (const double parameters = about_num_parameters(*this); parameters > kMaxParameters) {
    refuse(ErrorCode::kInvalidArgument, "the sizes given make a model of about ", parameters, " parameters: at most ",
           kMaxParameters, ". See --hidden-size, --ffn-hidden-size, --kv-channels and --vocab-size");
  }
  if (!group_query_attention && num_query_groups != 1 && num_query_groups != num_attention_heads) {
    refuse(ErrorCode::kInvalidArgument, "--num-query-groups ", num_query_groups,
           " has no effect without --group-query-attention: give both, or neither");
  }
  if (num_attention_heads % query_groups() != 0) {
    refuse(ErrorCode::kInvalidArgument, "--num-attention-heads ", num_attention_heads,
           " is not a multiple of --num-query-groups ", query_groups());
  }
  require_one_of("--normalization", normalization, {"RMSNorm", "LayerNorm"});
  if (position_embedding_type == "relative") {
    refuse(ErrorCode::kUnsupported, "--position-embedding-type ", position_embedding_type,
           " is not supported yet; use learned_absolute, rope, alibi or none");
  }
  require_one_of("--position-embedding-type", position_embedding_type, {"learned_absolute", "rope", "alibi", "none"});
  if (has_alibi() && attn_logit_softcapping > 0) {
    refuse(ErrorCode::kUnsupported,
           "--position-embedding-type alibi and --attn-logit-softcapping exclude each other: no model has both");
  }
  require_one_of("--softmax-type", softmax_type, {"vanilla", "off-by-one", "learnable"});
  if (swiglu + geglu + gelu_tanh + squared_relu > 1) {
    refuse(ErrorCode::kInvalidArgument, "--swiglu, --geglu, --gelu-tanh and --squared-relu exclude each other");
  }
  if (sliding_window < 0 || interleave_sliding_window < 0 || (sliding_window > 0 && interleave_sliding_window > 0)) {
    refuse(ErrorCode::kInvalidArgument, "--sliding-window ", sliding_window, " and --interleave-sliding-window ",
           interleave_sliding_window, ": give one of them, a positive number of tokens");
  }
  for (const auto& [value, flag] :
       {std::pair{hidden_dropout, "--hidden-dropout"}, std::pair{attention_dropout, "--attention-dropout"}}) {
    if (!(value >= 0 && value < 1)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": expected [0, 1)");
  }
  for (const auto& [value, flag] :
       {std::pair{query_pre_attn_scalar, "--query-pre-attn-scalar"},
        std::pair{attn_logit_softcapping, "--attn-logit-softcapping"},
        std::pair{output_logit_softcapping, "--output-logit-softcapping"}, std::pair{norm_epsilon, "--norm-epsilon"}}) {
    if (!(value >= 0) || std::isinf(value)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": at least 0");
  }
  for (const auto& [value, flag] :
       {std::pair{softmax_scale, "--softmax-scale"}, std::pair{rotary_base_local, "--rotary-base-local"}}) {
    if (!(value >= 0) || std::isinf(value)) refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": at least 0");
  }
  for (const auto& [value, flag] :
       {std::pair{embedding_multiplier, "--embedding-multiplier"},
        std::pair{residual_multiplier, "--residual-multiplier"}, std::pair{logits_scaling, "--logits-scaling"}}) {
    if (!(value > 0) || std::isinf(value)) {
      refuse(ErrorCode::kInvalidArgument, flag, " ", value, ": give a positive number");
    }
  }
  validate_layers();
  validate_rotary_embedding();
  validate_experts();
  validate_latent_attention();
}

void TransformerConfig::validate_layers() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  const auto refuse_list = [&](const char* flag, const std::string& text) {
    refuse(ErrorCode::kInvalidArgument, flag, " ", shown_value(text), ": expected a number, or a list of ", num_layers,
           " zeros and ones such as ([0]*", num_layers - 1, "+[1])");
  };
  if (layers_with_rope().empty()) refuse_list("--no-rope-freq", no_rope_freq);
  if (windows_of_layers().empty()) refuse_list("--window-attn-skip-freq", window_attn_skip_freq);
  if (window_attn_skip_freq != "0" && interleave_sliding_window > 0) {
    refuse(ErrorCode::kInvalidArgument, "--window-attn-skip-freq ", window_attn_skip_freq,
           " applies to --sliding-window; --interleave-sliding-window selects its own layers");
  }
  if (!pre_norm && !post_norm) {
    refuse(ErrorCode::kInvalidArgument, "--no-pre-norm without --post-norm leaves the layers without norms");
  }
  if (multi_latent_attention && (!pre_norm || qk_layernorm_all_heads)) {
    refuse(ErrorCode::kUnsupported, "--multi-latent-attention excludes --no-pre-norm and --qk-layernorm-all-heads");
  }
  if (has_experts() && !pre_norm) {
    refuse(ErrorCode::kUnsupported, "--num-experts is not supported with --no-pre-norm");
  }
  if (parallel_residual && post_norm) {
    refuse(ErrorCode::kUnsupported, "--parallel-residual is not supported with --post-norm");
  }
}

void TransformerConfig::validate_experts() const {
  const auto refuse = [](ErrorCode code, const auto&... parts) { throw Error(code, cat(parts...)); };
  constexpr int64_t kMaxExperts = 1 << 16, kMaxInAll = 1 << 18;  // ten times what any model has
  if (num_experts < 0 || num_experts > kMaxExperts) {
    refuse(ErrorCode::kInvalidArgument, "--num-experts ", num_experts, ": expected 0 to ", kMaxExperts);
  }
  if (num_experts > kMaxInAll / num_layers) {
    refuse(ErrorCode::kInvalidArgument, "--num-experts ", num_experts, " in --num-layers ", num_layers,
           ": expected at most ", kMaxInAll, " in total");
  }
  if (mtp_num_layers < 0 || mtp_num_layers > num_layers) {
    refuse(ErrorCode::kInvalidArgument, "--mtp-num-layers ", mtp_num_layers, ": expected 0 to --num-layers ",
           num_layers);
  }
  if ((has_dense_bias() || has_mlp_bias()) && (has_experts() || multi_latent_attention || mtp_num_layers > 0)) {
    refuse(ErrorCode::kUnsupported,
           "--num-experts, --multi-latent-attention and --mtp-num-layers are not supported with biases in all linear "
           "layers; give --disable-bias-linear, without --add-dense-bias and --add-mlp-bias");
  }
  if (!has_experts()) return;
  if (layers_with_experts().empty()) {
    refuse(ErrorCode::kInvalidArgument, "--moe-layer-freq ", shown_value(moe_layer_freq),
           ": expected a positive number, or a list of ", num_layers, " zeros and ones such as ([0]*1+[1]*",
           num_layers - 1, ")");
  }
  if (moe_ffn_hidden_size < 1 || moe_ffn_hidden_size > kMaxModelSize) {
    refuse(ErrorCode::kInvalidArgument, "--moe-ffn-hidden-size is ", moe_ffn_hidden_size,
           ": give a positive number up to ", kMaxModelSize);
  }
  if (moe_router_topk < 1 || moe_router_topk > num_experts) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-topk ", moe_router_topk, ": expected 1 to --num-experts ",
           num_experts);
  }
  require_one_of("--moe-router-score-function", moe_router_score_function, {"softmax", "sigmoid", "sqrtsoftplus"});
  const bool grouped = moe_router_num_groups != 0 || moe_router_group_topk != 0;
  if (grouped && (moe_router_num_groups < 1 || num_experts % moe_router_num_groups != 0 || moe_router_group_topk < 1 ||
                  moe_router_group_topk > moe_router_num_groups)) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-num-groups ", moe_router_num_groups,
           " must divide --num-experts ", num_experts, ", and --moe-router-group-topk ", moe_router_group_topk,
           " must be from 1 to that number");
  }
  if (!(moe_router_topk_scaling_factor > 0)) {
    refuse(ErrorCode::kInvalidArgument, "--moe-router-topk-scaling-factor ", moe_router_topk_scaling_factor,
           ": give a positive number");
  }
  if (moe_shared_expert_intermediate_size < 0 || moe_shared_expert_intermediate_size > kMaxModelSize) {
    refuse(ErrorCode::kInvalidArgument, "--moe-shared-expert-intermediate-size is ",
           moe_shared_expert_intermediate_size, ": expected 0 to ", kMaxModelSize);
  }
}

void TransformerConfig::validate_latent_attention() const {
  if (!multi_latent_attention) return;
  for (const auto& [value, least, flag] :
       {std::tuple{q_lora_rank, int64_t{0}, "--q-lora-rank"}, std::tuple{kv_lora_rank, int64_t{1}, "--kv-lora-rank"},
        std::tuple{qk_head_dim, int64_t{1}, "--qk-head-dim"},
        std::tuple{qk_pos_emb_head_dim, int64_t{1}, "--qk-pos-emb-head-dim"},
        std::tuple{v_head_dim, int64_t{1}, "--v-head-dim"}}) {
    if (value >= least && value <= kMaxModelSize) continue;
    throw Error(ErrorCode::kInvalidArgument,
                cat("--multi-latent-attention: ", flag, " is ", value, ": expected ", least, " to ", kMaxModelSize));
  }
  if (add_qkv_bias || group_query_attention) {
    throw Error(ErrorCode::kInvalidArgument,
                "--multi-latent-attention excludes --add-qkv-bias and "
                "--group-query-attention");
  }
  if (attention_output_gate) {
    throw Error(ErrorCode::kUnsupported,
                "--multi-latent-attention excludes --attention-output-gate, as in Megatron: no linear_qkv gives gates");
  }
}

void TransformerConfig::validate_rotary_embedding() const {
  const auto refuse = [](const auto&... parts) { throw Error(ErrorCode::kInvalidArgument, cat(parts...)); };
  const std::string& type = rope_scaling_type;
  require_one_of("--rope-scaling-type", type, {"none", "linear", "dynamic", "llama3", "yarn", "longrope"});
  if (type != "longrope" && !(rope_scaling_short_factor.empty() && rope_scaling_long_factor.empty())) {
    refuse("--rope-scaling-short-factor and --rope-scaling-long-factor need --rope-scaling-type longrope");
  }
  if (!has_rotary_embedding()) {
    if (type != "none") refuse("--rope-scaling-type ", type, " needs --position-embedding-type rope");
    return;
  }
  if (multi_latent_attention) {
    if (rotary_dim() % 2 != 0) {
      refuse("--qk-pos-emb-head-dim ", qk_pos_emb_head_dim, " is odd; rotary embedding rotates pairs");
    }
  } else if (!(rotary_percent > 0 && rotary_percent <= 1) || rotary_dim() < 2) {
    refuse("--rotary-percent ", rotary_percent, " of --kv-channels ", kv_channels,
           ": expected a share in (0, 1] that leaves at least one pair to rotate");
  }
  if (!multi_latent_attention && kv_channels % 2 != 0 && rotary_percent == 1.0) {
    refuse("--kv-channels ", kv_channels, " is odd; rotary embedding rotates pairs");
  }
  if (!(rotary_base > 1)) refuse("--rotary-base ", rotary_base, ": expected a number above 1");
  if (type == "none") {
    if (rope_scaling_factor != 1) {
      refuse("--rope-scaling-factor ", rope_scaling_factor,
             " needs --rope-scaling-type linear, dynamic, llama3, yarn or longrope");
    }
    return;
  }
  if (!(rope_scaling_factor >= 1)) refuse("--rope-scaling-factor ", rope_scaling_factor, ": at least 1");
  if (rope_scaling_original_max_position_embeddings < 0) {
    refuse("--rope-scaling-original-max-position-embeddings ", rope_scaling_original_max_position_embeddings,
           ": at least 0");
  }
  if (type == "llama3" &&
      !(rope_scaling_low_freq_factor > 0 && rope_scaling_high_freq_factor > rope_scaling_low_freq_factor)) {
    refuse("--rope-scaling-high-freq-factor ", rope_scaling_high_freq_factor,
           " must be above --rope-scaling-low-freq-factor ", rope_scaling_low_freq_factor, ", and that above 0");
  }
  if (type == "longrope") {
    if (multi_latent_attention) refuse("--rope-scaling-type longrope excludes --multi-latent-attention");
    if (rope_scaling_original_max_position_embeddings < 2) {
      refuse("--rope-scaling-type longrope: --rope-scaling-original-max-position-embeddings is ",
             rope_scaling_original_max_position_embeddings, ": expected the original length, at least 2");
    }
    if (!(rope_scaling_attention_factor >= 0) || std::isinf(rope_scaling_attention_factor)) {
      refuse("--rope-scaling-attention-factor ", rope_scaling_attention_factor, ": at least 0");
    }
    for (const bool is_long : {false, true}) {
      const auto given = static_cast<int64_t>(rope_factors(is_long).size());
      if (given == rotary_dim() / 2) continue;
      const std::string seen = given > 0 ? cat(given, " numbers") : "no list of positive numbers, separated by commas";
      refuse(is_long ? "--rope-scaling-long-factor" : "--rope-scaling-short-factor", " is ", seen, ": expected ",
             rotary_dim() / 2, ", one for each pair of a head");
    }
  }
  if (type == "yarn" && !(rope_scaling_beta_slow > 0 && rope_scaling_beta_fast >= rope_scaling_beta_slow)) {
    refuse("--rope-scaling-beta-fast ", rope_scaling_beta_fast, " must not be below --rope-scaling-beta-slow ",
           rope_scaling_beta_slow, ", and that be above 0");
  }
}

}  // namespace ms::core
