// Mixtral: experts in every layer, with their own tensor names (transformers models/mixtral).
#include "convert/families/families.h"
#include "convert/families/moe_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kWindow{"sliding_window", &C::sliding_window, 0.0, /*null_is_none=*/true};
constexpr ConfigKey kExperts{.hf = "num_local_experts", .field = &C::num_experts, .absent = 8.0, .also = "num_experts"};
constexpr ConfigKey kTopk{"num_experts_per_tok", &C::moe_router_topk, 2.0};
constexpr ConfigKey kExpertSize{"intermediate_size", &C::moe_ffn_hidden_size};
constexpr std::array kKeys = {kHiddenSize,        kIntermediateSize, kExpertSize, kNumHiddenLayers,
                              kHeadDim,           kVocabSize,        kWindow,     kMaxPositionEmbeddings,
                              rms_norm_eps(1e-5), kInitializerRange, kExperts,    kTopk,
                              kAttentionDropout};

constexpr std::array kMlp = {
    expert_rule("block_sparse_moe.experts.{expert}.w2.weight", Part::kWhole),
    expert_rule("block_sparse_moe.experts.{expert}.w1.weight", Part::kGate),
    expert_rule("block_sparse_moe.experts.{expert}.w3.weight", Part::kUp),
    NameRule{.hf = "block_sparse_moe.gate.weight", .canonical = "mlp.router.weight", .also = "mlp.gate.weight"}};
constexpr auto kLayer = joined(kMoeInputNorm, kMlp, kMoeMlpNorm, kMoeAttention);

}  // namespace

constinit const Family kMixtral{.model_type = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .structure = kLlamaStyle,
                                .keys = kKeys,
                                .activation_keys = kHiddenAct,
                                .before = kMoeBefore,
                                .layer = kLayer,
                                .after = kMoeAfter,
                                .expert_layers = ExpertLayers::kAll,
                                .about = "experts in every layer"};

}  // namespace ms::convert
