// ERNIE 4.5: Llama with heads rotated in neighbouring pairs, and optional biases (transformers models/ernie4_5).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kBiases{"use_bias", &C::add_bias_linear, 0.0};
constexpr std::array kKeys = {kHiddenSize,        kIntermediateSize, kNumHiddenLayers,
                              kHeadDim,           kVocabSize,        kMaxPositionEmbeddings,
                              rms_norm_eps(1e-5), kInitializerRange, kBiases};
constexpr auto kStructure =
    joined(kLlamaStyle, std::array{FixedField{&C::rotary_interleaved, true}, FixedField{&C::attention_dropout, 0.0}});
constexpr std::array kLayer = {kQuery,      kQueryBias,
                               kKey,        kKeyBias,
                               kValue,      kValueBias,
                               kProjection, kProjectionBias,
                               kGate,       NameRule{"mlp.gate_proj.bias", "mlp.linear_fc1.bias", Part::kGate},
                               kUp,         NameRule{"mlp.up_proj.bias", "mlp.linear_fc1.bias", Part::kUp},
                               kDown,       NameRule{"mlp.down_proj.bias", "mlp.linear_fc2.bias"},
                               kInputNorm,  kMlpNorm};

}  // namespace

constinit const Family kErnie45{.model_type = "ernie4_5",
                                .architecture = "Ernie4_5ForCausalLM",
                                .structure = kStructure,
                                .keys = kKeys,
                                .activation_keys = kHiddenAct,
                                .default_head_dim = 128,
                                .default_rotary_base = 500000.0,
                                .default_tied = true,
                                .before = kLlamaBefore,
                                .layer = kLayer,
                                .after = kLlamaAfter,
                                .about = "heads rotated in neighbouring pairs"};

}  // namespace ms::convert
