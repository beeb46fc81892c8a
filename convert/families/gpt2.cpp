// GPT-2: LayerNorm, learned positions, GELU, biases; matrices stored [in, out] (transformers models/gpt2).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr std::array<ConfigKey, 10> kKeys = {{
    {"n_embd", &C::hidden_size, 768.0},
    {"n_inner", &C::ffn_hidden_size, 0.0, /*null_is_none=*/true},  // 0: 4 n_embd
    {"n_layer", &C::num_layers, 12.0},
    {"vocab_size", &C::vocab_size},
    {"n_positions", &C::max_position_embeddings, 1024.0},
    {"layer_norm_epsilon", &C::norm_epsilon, 1e-5},
    {"initializer_range", &C::init_method_std, 0.02},
    {"embd_pdrop", &C::hidden_dropout, 0.1},  // GPT-2 has a single dropout of hidden states
    {"resid_pdrop", &C::hidden_dropout, 0.1},
    {"attn_pdrop", &C::attention_dropout, 0.1},
}};
constexpr std::array<RequiredFlag, 3> kRequired = {
    {{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}}};
constexpr std::array<std::string_view, 1> kActivation = {"activation_function"};

constexpr std::array<NameRule, 2> kBefore = {{
    {"wte.weight", "embedding.word_embeddings.weight"},
    {"wpe.weight", "embedding.position_embeddings.weight"},
}};
constexpr std::array<NameRule, 12> kLayer = {{
    {"ln_1.weight", "self_attention.linear_qkv.layer_norm_weight"},
    {"ln_1.bias", "self_attention.linear_qkv.layer_norm_bias"},
    {"attn.c_attn.weight", "self_attention.linear_qkv.weight", Part::kQkv, true},
    {"attn.c_attn.bias", "self_attention.linear_qkv.bias", Part::kQkv},
    {"attn.c_proj.weight", "self_attention.linear_proj.weight", Part::kWhole, true},
    {"attn.c_proj.bias", "self_attention.linear_proj.bias"},
    {"ln_2.weight", "mlp.linear_fc1.layer_norm_weight"},
    {"ln_2.bias", "mlp.linear_fc1.layer_norm_bias"},
    {"mlp.c_fc.weight", "mlp.linear_fc1.weight", Part::kWhole, true},
    {"mlp.c_fc.bias", "mlp.linear_fc1.bias"},
    {"mlp.c_proj.weight", "mlp.linear_fc2.weight", Part::kWhole, true},
    {"mlp.c_proj.bias", "mlp.linear_fc2.bias"},
}};
constexpr std::array<NameRule, 3> kAfter = {{
    {"ln_f.weight", "decoder.final_layernorm.weight"},
    {"ln_f.bias", "decoder.final_layernorm.bias"},
    {kHfOutput, kOutputLayer},
}};
constexpr std::array kStructure = {FixedField{&C::normalization, "LayerNorm"},
                                   FixedField{&C::position_embedding_type, "learned_absolute"},
                                   FixedField{&C::add_bias_linear, true}};

}  // namespace

constinit const Family kGpt2{
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .structure = kStructure,
    .keys = kKeys,
    .required = kRequired,
    .heads_key = "n_head",
    .groups_key = "",
    .activation_keys = kActivation,
    .activation = "gelu_new",
    .default_tied = true,
    .prefix = "transformer.",
    .layers = "h.",
    .before = kBefore,
    .layer = kLayer,
    .after = kAfter,
    .about = "LayerNorm, learned positions, biases; matrices stored [in, out]; the prefix transformer. may be missing"};

}  // namespace ms::convert
