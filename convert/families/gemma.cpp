// Gemma 2: GEGLU, norms before and after both blocks, soft caps, a window in every second layer. Gemma 3: norms of q
// and k, a window in five of six layers, which have a separate RoPE base (transformers models/gemma2, models/gemma3).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kScalar{"query_pre_attn_scalar", &C::query_pre_attn_scalar, 256.0, false, /*whole_number=*/true};
constexpr ConfigKey kWindow{"sliding_window", &C::interleave_sliding_window, 4096.0, /*null_is_none=*/true};
constexpr ConfigKey kScoreCap{"attn_logit_softcapping", &C::attn_logit_softcapping, 50.0, /*null_is_none=*/true};
constexpr ConfigKey kLogitCap{"final_logit_softcapping", &C::output_logit_softcapping, 30.0, /*null_is_none=*/true};
constexpr std::array kKeys = {
    kHiddenSize,        kIntermediateSize, kNumHiddenLayers, kHeadDim, kVocabSize, kMaxPositionEmbeddings,
    rms_norm_eps(1e-6), kInitializerRange, kScalar,          kWindow,  kScoreCap,  kLogitCap,
    kAttentionDropout,  kAttentionBias,    kDenseBias};
constexpr ConfigKey kWindow3{"sliding_window", &C::sliding_window, 4096.0, /*null_is_none=*/true};
constexpr ConfigKey kScoreCap3{"attn_logit_softcapping", &C::attn_logit_softcapping, 0.0, /*null_is_none=*/true};
constexpr ConfigKey kLogitCap3{"final_logit_softcapping", &C::output_logit_softcapping, 0.0, /*null_is_none=*/true};
constexpr std::array kKeys3 = {
    kHiddenSize,        kIntermediateSize, kNumHiddenLayers, kHeadDim, kVocabSize, kMaxPositionEmbeddings,
    rms_norm_eps(1e-6), kInitializerRange, kScalar,          kWindow3, kScoreCap3, kLogitCap3,
    kAttentionDropout,  kAttentionBias,    kDenseBias};
constexpr std::array<RequiredFlag, 1> kRequired = {{{"use_bidirectional_attention", false}}};
constexpr std::array<std::string_view, 2> kActivation = {"hidden_activation", "hidden_act"};
constexpr std::array kHeadNorms = {kQueryNorm, kKeyNorm};
constexpr std::array kMlpAndNorms = {kGate,
                                     kUp,
                                     kDown,
                                     kInputNorm,
                                     NameRule{"post_attention_layernorm.weight", "post_self_attn_layernorm.weight"},
                                     NameRule{"pre_feedforward_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
                                     NameRule{"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"}};
constexpr auto kLayer = joined(kProjections, kMlpAndNorms);
constexpr auto kLayer3 = joined(kProjections, kHeadNorms, kMlpAndNorms);
constexpr auto kStructure =
    joined(kLlamaStyle, std::array{FixedField{&C::swiglu, false}, FixedField{&C::gelu_tanh, true},
                                   FixedField{&C::apply_layernorm_1p, true}, FixedField{&C::post_norm, true},
                                   FixedField{&C::input_embeds_norm, true}});
constexpr auto kStructure3 = joined(kStructure, std::array{FixedField{&C::qk_layernorm, true}});

}  // namespace

constinit const Family kGemma2{
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .structure = kStructure,
    .keys = kKeys,
    .required = kRequired,
    .activation_keys = kActivation,
    .activation = "gelu_pytorch_tanh",
    .default_head_dim = 256,
    .default_tied = true,
    .before = kLlamaBefore,
    .layer = kLayer,
    .after = kLlamaAfter,
    .about = "GEGLU, norms centred on zero, before and after both blocks, soft caps, a window in every second layer"};

constinit const Family kGemma3Text{
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .structure = kStructure3,
    .keys = kKeys3,
    .required = kRequired,
    .activation_keys = kActivation,
    .activation = "gelu_pytorch_tanh",
    .default_head_dim = 256,
    .default_rotary_base = 1000000.0,
    .default_rotary_base_local = 10000.0,
    .window_pattern_key = "sliding_window_pattern",
    .default_window_pattern = 6,
    .default_tied = true,
    .before = kLlamaBefore,
    .layer = kLayer3,
    .after = kLlamaAfter,
    .about = "as gemma2, with norms of q and k, without caps; most layers have a window and a separate RoPE base"};

}  // namespace ms::convert
