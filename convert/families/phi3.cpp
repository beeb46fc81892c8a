// Phi-3: Llama with packed projections (transformers models/phi3).
#include "convert/families/families.h"
#include "convert/families/llama_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kWindow{"sliding_window", &C::sliding_window, 0.0, /*null_is_none=*/true};
constexpr ConfigKey kResidualDropout{"resid_pdrop", &C::hidden_dropout, 0.0};
constexpr std::array kKeys = {
    kHiddenSize,        kIntermediateSize, kNumHiddenLayers, kVocabSize,       kMaxPositionEmbeddings,
    rms_norm_eps(1e-5), kInitializerRange, kWindow,          kResidualDropout, kAttentionDropout};
constexpr std::array kLayer = {kProjection, kPackedQkv, kGateUp, kDown, kInputNorm, kMlpNorm};

}  // namespace

constinit const Family kPhi3{.model_type = "phi3",
                             .architecture = "Phi3ForCausalLM",
                             .structure = kLlamaStyle,
                             .keys = kKeys,
                             .activation_keys = kHiddenAct,
                             .default_partial_rotary = 1.0,
                             .default_original_positions = 4096,
                             .before = kLlamaBefore,
                             .layer = kLayer,
                             .after = kLlamaAfter,
                             .about = "qkv and gate/up in one tensor each"};

}  // namespace ms::convert
