// The shape of a decoder-only transformer, with Megatron's names (megatron/core/transformer/transformer_config.py).
//
// In core because three modules read it: train builds the model, ckpt writes it into the manifest, convert maps it to
// and from a Hugging Face config.json. fields() lists all fields once; flags, JSON keys and help come from that list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ms::core {

struct TransformerConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;  // 0: 4 * hidden_size, with swiglu 8/3 of it rounded down to a multiple of 64
  int64_t num_attention_heads = 0;
  bool group_query_attention = false;   // Megatron requires the switch beside the number
  int64_t num_query_groups = 1;         // key/value heads with group_query_attention, otherwise num_attention_heads
  int64_t kv_channels = 0;              // head size; 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;  // 0: the sequence length
  int64_t vocab_size = 0;               // true size; 0: the tokenizer's
  int64_t make_vocab_size_divisible_by = 128;
  std::string normalization = "LayerNorm";
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;      // norm weights are stored centred on zero: y = xhat * (1 + weight)
  bool qk_layernorm = false;            // norm of q and k per head (Qwen3)
  bool qk_layernorm_all_heads = false;  // with qk_layernorm: one norm over all heads of q, one over those of k (OLMo 2)
  bool pre_norm = true;                 // norms before attention and MLP
  bool post_norm = false;               // norms after attention and MLP, before the residual sum (Gemma 2, GLM-4)
  bool parallel_residual = false;       // attention and MLP both read the layer's input (GPT-NeoX)
  std::string position_embedding_type = "learned_absolute";
  double rotary_base = 10000.0;
  double rotary_percent = 1.0;
  bool rotary_interleaved = false;  // pairs are neighbours (GLM-4), not halves
  double rotary_base_local = 0.0;   // for layers with a window, not scaled (Gemma 3); 0: rotary_base
  std::string no_rope_freq = "0";   // layers without RoPE: the last of every N, or "([0]*3+[1])*2"; "0": none (SmolLM3)
  std::string rope_scaling_type = "none";
  double rope_scaling_factor = 1.0;
  int64_t rope_scaling_original_max_position_embeddings = 0;  // 0: max_position_embeddings
  double rope_scaling_low_freq_factor = 1.0;                  // llama3
  double rope_scaling_high_freq_factor = 4.0;
  double rope_scaling_beta_fast = 32.0;  // yarn
  double rope_scaling_beta_slow = 1.0;
  double rope_scaling_mscale = 0.0;
  double rope_scaling_mscale_all_dim = 0.0;
  double rope_scaling_attention_factor = 0.0;  // 0: from mscale (yarn), from factor and original length (longrope)
  // longrope: divisors of the frequencies of a head's pairs, "1.0,1.05,...": up to and beyond the original length.
  std::string rope_scaling_short_factor;
  std::string rope_scaling_long_factor;
  bool swiglu = false;
  bool geglu = false;
  bool gelu_tanh = false;
  bool squared_relu = false;     // ungated: relu(x)^2
  bool bias_gelu_fusion = true;  // ungated without squared_relu: tanh GELU, like Megatron's fused kernel; off: erf GELU
  bool add_bias_linear = true;
  bool add_qkv_bias = false;           // the biases of add_bias_linear one by one: of linear_qkv,
  bool add_dense_bias = false;         // of linear_proj (MindSpeed-LLM),
  bool add_mlp_bias = false;           // of linear_fc1 and linear_fc2
  double query_pre_attn_scalar = 0.0;  // scores are divided by its square root; 0: the head size
  double softmax_scale = 0.0;          // multiplies the scores; 0: derived from query_pre_attn_scalar
  double attn_logit_softcapping = 0.0;
  std::string softmax_type = "vanilla";  // of scores, with a key of no value among them or not
  bool attention_output_gate = false;    // linear_qkv gives a gate of each element of attention's result, too
  double output_logit_softcapping = 0.0;
  int64_t sliding_window = 0;
  int64_t interleave_sliding_window = 0;
  std::string window_attn_skip_freq = "0";  // layers with the window: all but the last of every N, or a list; "0": all
  double embedding_multiplier = 1.0;        // multiplies the embeddings
  double residual_multiplier = 1.0;         // multiplies what attention and MLP add to the residual stream
  double logits_scaling = 1.0;              // divides the logits
  bool input_embeds_norm = false;
  bool untie_embeddings_and_output_weights = false;
  // Experts instead of the MLP in some layers.
  int64_t num_experts = 0;           // 0: a dense model; the fields below are ignored
  std::string moe_layer_freq = "1";  // layers with experts: every N-th from the first on, or "([0]*3+[1]*58)"
  int64_t moe_ffn_hidden_size = 0;   // of an expert; 0: ffn_hidden_size
  int64_t moe_router_topk = 2;
  std::string moe_router_score_function = "softmax";
  bool moe_router_pre_softmax = false;         // softmax over all scores, not over the chosen ones
  bool moe_router_enable_expert_bias = false;  // used for the choice only (DeepSeek-V3); an fp32 buffer
  int64_t moe_router_num_groups = 0;           // 0: no groups
  int64_t moe_router_group_topk = 0;
  double moe_router_topk_scaling_factor = 1.0;
  int64_t moe_shared_expert_intermediate_size = 0;  // of all shared experts together; 0: none
  bool moe_shared_expert_gate = false;
  // Latent attention: queries, keys and values from low-rank vectors.
  bool multi_latent_attention = false;
  int64_t q_lora_rank = 0;  // 0: queries come from the hidden state
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 0;          // elements of a head that are not rotated
  int64_t qk_pos_emb_head_dim = 0;  // elements that are rotated
  int64_t v_head_dim = 0;
  int64_t mtp_num_layers = 0;  // layers after the model that predict further tokens (multi-token prediction)
  double init_method_std = 0.02;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = TransformerConfig;
    field("num_layers", &C::num_layers, "Transformer layers; required");
    field("hidden_size", &C::hidden_size, "Width of the residual stream; required");
    field("ffn_hidden_size", &C::ffn_hidden_size,
          "Width of the MLP; 0: 4 x hidden, with --swiglu 8/3 x hidden rounded down to a multiple of 64");
    field("num_attention_heads", &C::num_attention_heads, "Query heads; required");
    field("group_query_attention", &C::group_query_attention, "Share each key/value head among several query heads");
    field("num_query_groups", &C::num_query_groups, "Key/value heads, with --group-query-attention");
    field("kv_channels", &C::kv_channels, "Head size; 0: hidden size / heads, which must divide");
    field("max_position_embeddings", &C::max_position_embeddings,
          "Longest sequence of the model in tokens; 0: --seq-length");
    field("vocab_size", &C::vocab_size, "True vocabulary size; 0: the tokenizer's");
    field("make_vocab_size_divisible_by", &C::make_vocab_size_divisible_by,
          "Pad the vocabulary to a multiple of this x TP");
    field("normalization", &C::normalization, "LayerNorm or RMSNorm");
    field("norm_epsilon", &C::norm_epsilon, "Epsilon in the denominator of the norms");
    field("apply_layernorm_1p", &C::apply_layernorm_1p, "Store norm weights as their difference from 1 (Gemma)");
    field("qk_layernorm", &C::qk_layernorm, "Norms of q and k, per head (Qwen3)");
    field("qk_layernorm_all_heads", &C::qk_layernorm_all_heads,
          "With --qk-layernorm: one norm over all heads of q, one over all heads of k (OLMo 2)");
    field("pre_norm", &C::pre_norm, "Norms before attention and MLP");
    field("post_norm", &C::post_norm, "Norms after attention and MLP, before the residual sum (Gemma 2, GLM-4)");
    field("parallel_residual", &C::parallel_residual, "Attention and MLP both read the layer's input (GPT-NeoX)");
    field("position_embedding_type", &C::position_embedding_type, "learned_absolute, rope, alibi or none");
    field("rotary_base", &C::rotary_base, "Base of the rotary angles");
    field("rotary_percent", &C::rotary_percent, "Share of the head that is rotated, 0 to 1");
    field("rotary_interleaved", &C::rotary_interleaved,
          "Rotate pairs of neighbouring elements (GLM-4); off: halves of the head");
    field("rotary_base_local", &C::rotary_base_local,
          "Base of the rotary angles in layers with a sliding window, unscaled (Gemma 3); 0: --rotary-base");
    field("no_rope_freq", &C::no_rope_freq,
          "Layers without rotary embedding: the last of every N, or a list such as ([0]*3+[1])*2; 0: none");
    field("rope_scaling_type", &C::rope_scaling_type, "none, linear, dynamic (NTK), llama3, yarn or longrope");
    field("rope_scaling_factor", &C::rope_scaling_factor,
          "How far the context is stretched; with longrope 1: --max-position-embeddings / original length");
    field("rope_scaling_original_max_position_embeddings", &C::rope_scaling_original_max_position_embeddings,
          "Longest sequence before the stretch (llama3, yarn, longrope); 0: --max-position-embeddings");
    field("rope_scaling_low_freq_factor", &C::rope_scaling_low_freq_factor,
          "llama3: wavelengths above original length / this are scaled by the whole factor");
    field("rope_scaling_high_freq_factor", &C::rope_scaling_high_freq_factor,
          "llama3: wavelengths below original length / this are not scaled");
    field("rope_scaling_beta_fast", &C::rope_scaling_beta_fast,
          "yarn: pairs with more rotations than this within the original context are not scaled");
    field("rope_scaling_beta_slow", &C::rope_scaling_beta_slow,
          "yarn: pairs with fewer rotations than this within the original context are scaled by the whole factor");
    field("rope_scaling_mscale", &C::rope_scaling_mscale, "yarn: numerator of the attention factor (DeepSeek)");
    field("rope_scaling_mscale_all_dim", &C::rope_scaling_mscale_all_dim, "yarn: its denominator");
    field("rope_scaling_attention_factor", &C::rope_scaling_attention_factor,
          "yarn: factor of cosines and sines; 0: from mscale, else 0.1 ln(factor) + 1. longrope: 0: root of "
          "1 + ln(factor) / ln(original length)");
    field("rope_scaling_short_factor", &C::rope_scaling_short_factor,
          "longrope: divisors of the frequencies, one for each pair of a head, such as 1.0,1.05: for sequences up to "
          "the original length");
    field("rope_scaling_long_factor", &C::rope_scaling_long_factor,
          "longrope: divisors of the frequencies for longer sequences");
    field("swiglu", &C::swiglu, "Gated MLP: silu(gate) * up");
    field("geglu", &C::geglu, "Gated MLP: gelu(gate) * up");
    field("gelu_tanh", &C::gelu_tanh, "Gated MLP: gelu(gate) * up, by tanh (Gemma)");
    field("squared_relu", &C::squared_relu, "MLP without a gate: relu(x)^2 (Nemotron)");
    field("bias_gelu_fusion", &C::bias_gelu_fusion,
          "MLP without a gate: GELU by tanh, as Megatron's fused kernel has it; off: by erf");
    field("add_bias_linear", &C::add_bias_linear, "Biases in all linear layers");
    field("add_qkv_bias", &C::add_qkv_bias, "With --disable-bias-linear: bias in the QKV projection all the same");
    field("add_dense_bias", &C::add_dense_bias,
          "With --disable-bias-linear: bias in the output projection of attention all the same");
    field("add_mlp_bias", &C::add_mlp_bias, "With --disable-bias-linear: biases in the MLP all the same");
    field("query_pre_attn_scalar", &C::query_pre_attn_scalar,
          "Divide attention scores by the root of this (Gemma 2); 0: by the root of the head size");
    field("softmax_scale", &C::softmax_scale,
          "Factor of the attention scores (Granite); 0: 1 / root of --query-pre-attn-scalar");
    field("attn_logit_softcapping", &C::attn_logit_softcapping,
          "Attention scores s become cap * tanh(s / cap) (Gemma 2); 0: no cap");
    field(
        "softmax_type", &C::softmax_type,
        "Softmax of attention scores: vanilla; off-by-one, with 1 added to the denominator, so that a head can attend "
        "to nothing; learnable, with exp of a parameter of each head instead of 1 (gpt-oss's sinks)");
    field("attention_output_gate", &C::attention_output_gate,
          "Multiply what attention gives by sigmoids of as many elements that linear_qkv gives besides (Qwen3-Next)");
    field("output_logit_softcapping", &C::output_logit_softcapping,
          "Logits x become cap * tanh(x / cap) (Gemma 2); 0: no cap");
    field("sliding_window", &C::sliding_window, "Keys that a query sees, its own position included; 0: all before it");
    field("interleave_sliding_window", &C::interleave_sliding_window,
          "Sliding window in every second layer, from the first on; 0: none");
    field("window_attn_skip_freq", &C::window_attn_skip_freq,
          "Layers with --sliding-window: all but the last of every N, or a list such as ([1]*5+[0])*4; 0: all");
    field("embedding_multiplier", &C::embedding_multiplier, "Factor of the embeddings (Granite)");
    field("residual_multiplier", &C::residual_multiplier,
          "Factor of what attention and MLP add to the residual stream (Granite)");
    field("logits_scaling", &C::logits_scaling, "Divisor of the logits (Granite)");
    field("input_embeds_norm", &C::input_embeds_norm, "Multiply embeddings by the root of the hidden size (Gemma)");
    field("untie_embeddings_and_output_weights", &C::untie_embeddings_and_output_weights,
          "Give the output layer its own weight; off: the embedding's");
    field("num_experts", &C::num_experts, "Experts per layer, in place of the MLP; 0: none");
    field("moe_layer_freq", &C::moe_layer_freq,
          "Layers with experts: every N-th from the first on, or a list such as ([0]*3+[1]*58)");
    field("moe_ffn_hidden_size", &C::moe_ffn_hidden_size, "Width of an expert; 0: --ffn-hidden-size");
    field("moe_router_topk", &C::moe_router_topk, "Experts per token");
    field("moe_router_score_function", &C::moe_router_score_function,
          "Scores of the router: softmax, sigmoid, or sqrtsoftplus (roots of log(1 + exp(x)))");
    field("moe_router_pre_softmax", &C::moe_router_pre_softmax,
          "Softmax over the scores of all experts; off: of the chosen ones");
    field("moe_router_enable_expert_bias", &C::moe_router_enable_expert_bias,
          "Bias of each expert for the choice only, updated without a gradient (DeepSeek-V3)");
    field("moe_router_num_groups", &C::moe_router_num_groups, "Groups of experts, of which some are chosen; 0: none");
    field("moe_router_group_topk", &C::moe_router_group_topk, "Groups per token");
    field("moe_router_topk_scaling_factor", &C::moe_router_topk_scaling_factor,
          "Factor of the weights of the chosen experts");
    field("moe_shared_expert_intermediate_size", &C::moe_shared_expert_intermediate_size,
          "Width of the shared experts that every token uses, all together; 0: none");
    field("moe_shared_expert_gate", &C::moe_shared_expert_gate, "Gate the output of the shared experts");
    field("multi_latent_attention", &C::multi_latent_attention,
          "Compute queries, keys and values from low-rank vectors (DeepSeek)");
    field("q_lora_rank", &C::q_lora_rank, "Rank of the queries' vector; 0: none");
    field("kv_lora_rank", &C::kv_lora_rank, "Rank of the vector of keys and values");
    field("qk_head_dim", &C::qk_head_dim, "Elements of a query or key head that are not rotated");
    field("qk_pos_emb_head_dim", &C::qk_pos_emb_head_dim, "Elements of a query or key head that are rotated");
    field("v_head_dim", &C::v_head_dim, "Elements of a value head");
    field("mtp_num_layers", &C::mtp_num_layers, "Layers after the model that predict further tokens; 0: none");
    field("init_method_std", &C::init_method_std, "Standard deviation of the initial weights");
    field("hidden_dropout", &C::hidden_dropout,
          "Dropout of embeddings and of the outputs of attention and MLP, 0 to 1; 0 for current models");
    field("attention_dropout", &C::attention_dropout,
          "Dropout of attention probabilities, 0 to 1; 0 for current models");
  }

  bool operator==(const TransformerConfig&) const = default;

  int64_t query_groups() const { return group_query_attention ? num_query_groups : num_attention_heads; }
  // Of linear_qkv: of each query group its queries, their gates with an output gate, its key, its value.
  int64_t qkv_rows() const {
    return ((attention_output_gate ? 2 : 1) * num_attention_heads + 2 * query_groups()) * kv_channels;
  }
  bool gated() const { return swiglu || geglu || gelu_tanh; }
  int64_t fc1_rows() const { return gated() ? 2 * ffn_hidden_size : ffn_hidden_size; }
  bool has_qkv_bias() const { return add_bias_linear || add_qkv_bias; }
  bool has_dense_bias() const { return add_bias_linear || add_dense_bias; }
  bool has_mlp_bias() const { return add_bias_linear || add_mlp_bias; }
  bool has_experts() const { return num_experts > 0; }
  int64_t expert_fc1_rows() const { return (gated() ? 2 : 1) * moe_ffn_hidden_size; }
  int64_t shared_expert_fc1_rows() const { return (gated() ? 2 : 1) * moe_shared_expert_intermediate_size; }
  // Rows of latent attention's query projection and of its key and value projection; columns of linear_proj.
  int64_t latent_query_rows() const { return num_attention_heads * (qk_head_dim + qk_pos_emb_head_dim); }
  int64_t latent_key_value_rows() const { return num_attention_heads * (qk_head_dim + v_head_dim); }
  // Elements of a head of queries and keys, and of values.
  int64_t key_head_dim() const { return multi_latent_attention ? qk_head_dim + qk_pos_emb_head_dim : kv_channels; }
  int64_t value_head_dim() const { return multi_latent_attention ? v_head_dim : kv_channels; }
  int64_t proj_columns() const { return num_attention_heads * value_head_dim(); }
  bool has_layer_norm() const { return normalization == "LayerNorm"; }
  bool has_learned_positions() const { return position_embedding_type == "learned_absolute"; }
  bool has_alibi() const { return position_embedding_type == "alibi"; }
  bool has_rotary_embedding() const { return position_embedding_type == "rope"; }
  // Rotated elements of a head: rotary_percent of kv_channels, rounded down to even; of latent attention its own part.
  int64_t rotary_dim() const {
    if (multi_latent_attention) return qk_pos_emb_head_dim;
    return static_cast<int64_t>(static_cast<double>(kv_channels) * rotary_percent) / 2 * 2;
  }
  // longrope: the divisors of the pairs' frequencies, [rotary_dim / 2], of sequences beyond the original length or up
  // to it. Empty if the list is malformed.
  std::vector<double> rope_factors(bool is_long) const;
  // Spells such a list, shortest digits that read back the same.
  static std::string rope_factor_text(const std::vector<double>& factors);
  // Number of weights in the norm of q, and in that of k.
  int64_t q_norm_size() const { return qk_layernorm_all_heads ? num_attention_heads * kv_channels : kv_channels; }
  int64_t k_norm_size() const { return qk_layernorm_all_heads ? query_groups() * kv_channels : kv_channels; }
  // Keys that a query of this layer sees; 0: all before it. A layer here and below: its global index; those of
  // multi-token prediction follow the model's and are of the kind of its last one.
  int64_t window_of_layer(int64_t layer) const { return windows_of_layers().at(kind_of_layer(layer)); }
  // How many there are with those of multi-token prediction.
  int64_t num_layers_with_mtp() const { return num_layers + mtp_num_layers; }

  // Whether the rotary frequencies depend on max_position_embeddings, so that changing it gives another model.
  bool frequencies_follow_max_position() const { return has_rotary_embedding() && rope_scaling_type == "dynamic"; }

  // For each layer, whether it has experts, from moe_layer_freq. Empty if that is malformed.
  std::vector<bool> layers_with_experts() const;
  // Whether this layer has experts; moe_layer_freq must be well formed.
  bool layer_has_experts(int64_t layer) const {
    return has_experts() && layers_with_experts().at(kind_of_layer(layer));
  }
  bool layer_has_rope(int64_t layer) const { return layers_with_rope().at(kind_of_layer(layer)); }
  // For each layer, whether it has rotary embedding, from no_rope_freq. Empty if that is malformed.
  std::vector<bool> layers_with_rope() const;
  // For each layer, how many keys a query sees; 0: all before it. Empty if window_attn_skip_freq is malformed.
  std::vector<int64_t> windows_of_layers() const;

  // Fills the fields that default to 0 from the others, and sets fields that do not apply to this model to one
  // canonical value. seq_length: tokens, the default of max_position_embeddings.
  void resolve(int64_t seq_length);
  // Vocabulary rows, padded to a multiple of make_vocab_size_divisible_by x tensor_model_parallel_size as in Megatron.
  int64_t padded_vocab_size(int tensor_model_parallel_size) const;
  // Checks rules across fields; throws kInvalidArgument (contradictions) or kUnsupported (not implemented), naming
  // flags.
  void validate() const;
  // Trainable parameters of the whole model, with the padded vocabulary of the given TP.
  int64_t num_parameters(int tensor_model_parallel_size) const;

 private:
  size_t kind_of_layer(int64_t layer) const { return static_cast<size_t>(layer < num_layers ? layer : num_layers - 1); }
  void validate_layers() const;
  void validate_rotary_embedding() const;
  void validate_experts() const;
  void validate_latent_attention() const;
};

}  // namespace ms::core
