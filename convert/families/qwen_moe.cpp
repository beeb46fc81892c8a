// Qwen2-MoE (with a gated shared expert) and Qwen3-MoE (transformers models/qwen2_moe, models/qwen3_moe).
#include "convert/families/families.h"
#include "convert/families/moe_style.h"

namespace ms::convert {
namespace {

constexpr ConfigKey kQkvBias{"qkv_bias", &C::add_qkv_bias, 1.0};
constexpr ConfigKey kExperts{
    .hf = "num_experts", .field = &C::num_experts, .absent = std::nullopt, .also = "num_local_experts"};
constexpr ConfigKey kSharedSize{.hf = "shared_expert_intermediate_size",
                                .field = &C::moe_shared_expert_intermediate_size,
                                .absent = 5632.0,
                                .may_be_zero = true};

constexpr std::array kQwen2Keys = {
    kHiddenSize, kIntermediateSize, kMoeIntermediateSize,   kSharedSize,        kNumHiddenLayers,
    kHeadDim,    kVocabSize,        kMaxPositionEmbeddings, rms_norm_eps(1e-6), kInitializerRange,
    kExperts,    kExpertsPerToken,  norm_topk_prob(false),  kQkvBias,           kAttentionDropout};
constexpr std::array kQwen3Keys = {kHiddenSize,       kIntermediateSize, kMoeIntermediateSize,   kNumHiddenLayers,
                                   kHeadDim,          kVocabSize,        kMaxPositionEmbeddings, rms_norm_eps(1e-6),
                                   kInitializerRange, kExperts,          kExpertsPerToken,       norm_topk_prob(false),
                                   kAttentionDropout};
constexpr std::array<RequiredFlag, 1> kQwen3Required = {{{"attention_bias", false}}};

constexpr std::array kSharedExpert = {shared_rule("mlp.shared_expert.down_proj.weight", Part::kWhole),
                                      shared_rule("mlp.shared_expert.gate_proj.weight", Part::kGate),
                                      shared_rule("mlp.shared_expert.up_proj.weight", Part::kUp),
                                      NameRule{"mlp.shared_expert_gate.weight", "mlp.shared_experts.gate_weight"}};
constexpr auto kQwen2Layer = joined(kMoeInputNorm, kMoeMlp, kSharedExpert, kMoeMlpNorm, kMoeAttention);
constexpr auto kQwen3Layer = joined(kMoeInputNorm, kMoeMlp, kMoeMlpNorm, kMoeAttention);
constexpr auto kQwen2Structure = joined(kLlamaStyle, std::array{FixedField{&C::moe_shared_expert_gate, true}});
constexpr auto kQwen3Structure = joined(kLlamaStyle, std::array{FixedField{&C::qk_layernorm, true}});

}  // namespace

constinit const Family kQwen2Moe{.model_type = "qwen2_moe",
                                 .architecture = "Qwen2MoeForCausalLM",
                                 .structure = kQwen2Structure,
                                 .keys = kQwen2Keys,
                                 .activation_keys = kHiddenAct,
                                 .before = kMoeBefore,
                                 .layer = kQwen2Layer,
                                 .after = kMoeAfter,
                                 .expert_layers = ExpertLayers::kSparseStep,
                                 .about = "experts, a gated shared expert; biases on q, k, v"};

constinit const Family kQwen3Moe{.model_type = "qwen3_moe",
                                 .architecture = "Qwen3MoeForCausalLM",
                                 .structure = kQwen3Structure,
                                 .keys = kQwen3Keys,
                                 .required = kQwen3Required,
                                 .activation_keys = kHiddenAct,
                                 .default_head_dim = 0,
                                 .before = kMoeBefore,
                                 .layer = kQwen3Layer,
                                 .after = kMoeAfter,
                                 .expert_layers = ExpertLayers::kSparseStep,
                                 .about = "experts; norms of q and k, own head size"};

}  // namespace ms::convert
