// Gemma 2: GEGLU, norms around both blocks, soft caps, a window in every second layer (transformers models/gemma2).
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
    kAttentionDropout};
constexpr std::array<RequiredFlag, 2> kRequired = {{{"attention_bias", false}, {"use_bidirectional_attention", false}}};
constexpr std::array<std::string_view, 2> kActivation = {"hidden_activation", "hidden_act"};
constexpr std::array kLayer = {kQuery,
                               kKey,
                               kValue,
                               kProjection,
                               kGate,
                               kUp,
                               kDown,
                               kInputNorm,
                               NameRule{"post_attention_layernorm.weight", "post_self_attn_layernorm.weight"},
                               NameRule{"pre_feedforward_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
                               NameRule{"post_feedforward_layernorm.weight", "post_mlp_layernorm.weight"}};

}  // namespace

constinit const Family kGemma2{
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .fix =
        [](C& config) {
          fix_llama_style(config);
          config.swiglu = false;
          config.gelu_tanh = true;
          config.apply_layernorm_1p = true;
          config.post_norm = true;
          config.input_embeds_norm = true;
        },
    .keys = kKeys,
    .required = kRequired,
    .activation_keys = kActivation,
    .activation = "gelu_pytorch_tanh",
    .default_head_dim = 256,
    .default_tied = true,
    .before = kLlamaBefore,
    .layer = kLayer,
    .after = kLlamaAfter,
    .about = "GEGLU, norms centred on zero and around both blocks, soft caps, a window in every second layer"};

}  // namespace ms::convert
