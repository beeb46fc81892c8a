#include "train/features/mixture_of_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/layout/parameter_specs.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kTypes = "--moe-router-load-balancing-type";
constexpr int64_t kMaxSharedExperts = 1 << 16;

bool trains_experts(const TrainerConfig& config) { return config.model.has_experts(); }

[[noreturn]] void refuse_experts(const std::string& what) {
  throw core::Error(core::ErrorCode::kUnsupported, core::cat("--num-experts ", what));
}

// What a model with experts cannot be trained with yet.
void check_support(const TrainerConfig& config) {
  if (config.parallel.use_nanopipe_swap) refuse_experts("with --use-nanopipe-swap is not trained yet");
  if (config.parallel.automated_pipeline || config.parallel.automated_pipeline_perf)
    refuse_experts("with --automated-pipeline: the time of layers with experts is not measured yet");
}

void check_groups(const TrainerConfig& config) {
  const core::TransformerConfig& model = config.model;
  const bool by_best = has_balancing(config.training, kGroupLimited);
  require(!by_best || model.moe_router_group_topk > 0, kTypes,
          " group_limited_greedy needs --moe-router-num-groups and --moe-router-group-topk");
  if (model.moe_router_group_topk == 0) return;
  const int64_t k = model.moe_router_topk, groups = model.moe_router_group_topk;
  const int64_t size = model.num_experts / model.moe_router_num_groups;
  const bool has_one_of_each = by_best || (k >= groups && k / groups <= size);
  require(has_one_of_each && k <= groups * size, "--moe-router-topk ", k, " of --moe-router-group-topk ", groups,
          " groups of ", size, " experts: expected one of each group at least, and no more than they have");
}

// What has an auxiliary loss, which the types of a list may have together.
bool has_auxiliary_loss(const std::string& type) {
  return type == kAuxLoss || type == kSeqAuxLoss || type == kGlobalAuxLoss;
}

// MindSpeed-LLM's types, each with its own choice of experts and an auxiliary loss.
bool has_own_choice_and_loss(const std::string& type) { return type == kPaiAuxLoss || type == kGroupLimited; }

// Types with their own choice of experts, and no auxiliary loss.
bool has_own_choice_without_loss(const std::string& type) { return type == kSinkhorn || type == kSparseMixer; }

void check_balancing(const TrainerConfig& config) {
  const MixtureOfExpertsConfig& moe = config.training;
  const std::vector<std::string>& types = moe.moe_router_load_balancing_type;
  for (const std::string& type : types) {
    require_one_of(kTypes, type,
                   {"aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "softmax_topk", "pai_megatron_aux_loss",
                    "group_limited_greedy", "sparsemixer_topk", "none"});
  }
  require(!types.empty() && std::set(types.begin(), types.end()).size() == types.size(), kTypes,
          " names a type twice, or none");
  require(types.size() == moe.moe_aux_loss_coeff.size(), kTypes, " has ", types.size(),
          " entries, but --moe-aux-loss-coeff ", moe.moe_aux_loss_coeff.size(), ": one for each");
  for (size_t i = 0; i < types.size(); ++i) {
    const double coefficient = moe.moe_aux_loss_coeff[i];
    require(coefficient >= 0, "--moe-aux-loss-coeff ", coefficient, ": at least 0");
    require(!has_own_choice_without_loss(types[i]) || coefficient == 0, "--moe-aux-loss-coeff ", coefficient, ": ",
            kTypes, " ", types[i], " has no auxiliary loss");
    require(has_auxiliary_loss(types[i]) || types.size() == 1, kTypes, " ", types[i], " excludes others");
    require(!has_own_choice_and_loss(types[i]) || config.model.moe_router_score_function == "softmax", kTypes, " ",
            types[i], " excludes --moe-router-score-function ", config.model.moe_router_score_function);
  }
  require(!has_balancing(moe, kSoftmaxTopk) || config.model.moe_router_score_function == "softmax", kTypes,
          " softmax_topk excludes --moe-router-score-function ", config.model.moe_router_score_function);
  if (!has_own_choice_without_loss(types.front())) return;
  require(types.front() != kSparseMixer || config.model.moe_router_topk == 2, kTypes, " ", kSparseMixer,
          " with --moe-router-topk ", config.model.moe_router_topk, ": it draws 2 experts for each token");
  require(config.model.moe_router_score_function == "softmax" && config.model.moe_router_group_topk == 0 &&
              config.model.moe_router_topk_scaling_factor == 1,
          kTypes, " ", types.front(),
          " excludes --moe-router-score-function sigmoid and sqrtsoftplus, --moe-router-num-groups and "
          "--moe-router-topk-scaling-factor");
}

// Their weights are one operand of a product.
void check_frozen(const TrainerConfig& config) {
  const std::vector<std::string> frozen = frozen_parameters(config.optimizer, config.model);
  if (frozen.empty()) return;
  const auto is_frozen = [&](const std::string& key) { return std::ranges::binary_search(frozen, key); };
  for (const layout::ParameterSpec& spec : layout::parameter_specs(config.model)) {
    if (spec.expert < 0) continue;
    const std::string number = core::cat(".local_experts.", spec.expert, ".");
    std::string first = spec.key;
    first.replace(first.find(number), number.size(), ".local_experts.0.");
    if (is_frozen(spec.key) == is_frozen(first)) continue;
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat("--freeze-parameters ", config.optimizer.freeze_parameters, " matches ",
                                is_frozen(first) ? first : spec.key, ", but not ", is_frozen(first) ? spec.key : first,
                                ": the same linear layer of all experts of a layer must train, or none"));
  }
}

void check_experts(const TrainerConfig& config, int) {
  const MixtureOfExpertsConfig& moe = config.training;
  require_one_of("--moe-router-dtype", moe.moe_router_dtype, {"fp32", "fp64"});
  const int64_t shared = config.model.moe_shared_expert_intermediate_size;
  require(!moe.first_k_dense_replace || *moe.first_k_dense_replace >= -1, "--first-k-dense-replace ",
          moe.first_k_dense_replace.value_or(0), ": at least 0, or -1 for none");
  require(!moe.n_shared_experts || (*moe.n_shared_experts >= 0 && *moe.n_shared_experts <= kMaxSharedExperts),
          "--n-shared-experts ", moe.n_shared_experts.value_or(0), ": expected 0 to ", kMaxSharedExperts);
  if (!trains_experts(config)) return;
  require(!moe.n_shared_experts || shared == *moe.n_shared_experts * config.model.moe_ffn_hidden_size,
          "--n-shared-experts ", moe.n_shared_experts.value_or(0), " of --moe-ffn-hidden-size ",
          config.model.moe_ffn_hidden_size, " contradicts --moe-shared-expert-intermediate-size ", shared);
  const std::vector<bool> layers = config.model.layers_with_experts();
  require(std::ranges::count(layers, true) > 0, "--num-experts ", config.model.num_experts, ": none of ",
          config.model.num_layers, " layers has experts by --moe-layer-freq and --first-k-dense-replace");
  check_support(config);
  check_groups(config);
  // Else each weight would be 1, and the router would not learn (megatron/core/transformer/transformer_config.py).
  require(config.model.moe_router_topk > 1 || config.model.num_experts == 1 ||
              config.model.moe_router_score_function != "softmax" || config.model.moe_router_pre_softmax ||
              has_balancing(moe, kSinkhorn),
          "--moe-router-topk 1 with a softmax over the one chosen score, which is always 1: give "
          "--moe-router-pre-softmax");
  check_balancing(config);
  require(!moe.moe_z_loss_coeff || *moe.moe_z_loss_coeff >= 0, "--moe-z-loss-coeff ", moe.moe_z_loss_coeff.value_or(0),
          ": at least 0");
  require(!moe.moe_expert_capacity_factor || *moe.moe_expert_capacity_factor > 0, "--moe-expert-capacity-factor ",
          moe.moe_expert_capacity_factor.value_or(0), ": give a positive number");
  require(moe.moe_router_bias_update_rate >= 0, "--moe-router-bias-update-rate ", moe.moe_router_bias_update_rate,
          ": at least 0");
  require_one_of("--moe-token-drop-policy", moe.moe_token_drop_policy, {"probs", "position"});
  require_one_of("--moe-zero-memory", moe.moe_zero_memory, {"disable", "level0", "level1"});
  require(moe.moe_zero_memory_num_layers.value_or(0) >= 0, "--moe-zero-memory-num-layers ",
          moe.moe_zero_memory_num_layers.value_or(0), ": at least 0");
  require(moe.moe_adaptive_recompute_activation_scale > 0, "--moe-adaptive-recompute-activation-scale ",
          moe.moe_adaptive_recompute_activation_scale, ": give a positive number");
  const double jitter = moe.moe_input_jitter_eps.value_or(0);
  require(jitter >= 0 && jitter < 1, "--moe-input-jitter-eps ", jitter, ": at least 0 and below 1");
  check_frozen(config);
}

// Flags that stand for fields of the model.
void resolve_experts(TrainerConfig& config) {
  core::TransformerConfig& model = config.model;
  if (!model.has_experts()) return;
  MixtureOfExpertsConfig& moe = config.training;
  if (moe.seq_aux && has_balancing(moe, kNoBalancing)) moe.moe_router_load_balancing_type = {std::string(kSeqAuxLoss)};
  if (has_balancing(moe, kPaiAuxLoss)) {
    model.moe_router_pre_softmax = true;
  } else if (moe.norm_topk_prob) {
    model.moe_router_pre_softmax = false;
  } else if (has_balancing(moe, kSoftmaxTopk) || has_balancing(moe, kGroupLimited)) {
    model.moe_router_pre_softmax = true;
  }
  if (has_balancing(moe, kGroupLimited) && model.moe_router_num_groups == 0)  // as MindSpeed-LLM: groups of a rank each
    model.moe_router_num_groups = expert_model_parallel_size(config.parallel);
  if (model.moe_layer_freq == "-1") model.moe_layer_freq = "1";  // MindSpeed-LLM's way to say all layers
  const std::optional<int64_t> dense = config.training.first_k_dense_replace;
  std::vector<bool> layers = model.layers_with_experts();
  if (dense && *dense > 0 && !layers.empty()) {
    std::fill_n(layers.begin(), std::min(*dense, static_cast<int64_t>(layers.size())), false);
    std::string list;
    for (const bool has : layers) list += core::cat(list.empty() ? "([" : ",", has ? 1 : 0);
    model.moe_layer_freq = list + "])";
  }
  const int64_t shared = config.training.n_shared_experts.value_or(0);
  if (shared <= 0 || shared > kMaxSharedExperts || model.moe_shared_expert_intermediate_size != 0) return;
  const int64_t size = model.moe_ffn_hidden_size > 0 ? model.moe_ffn_hidden_size : model.ffn_hidden_size;
  if (size > 0 && size <= INT32_MAX) model.moe_shared_expert_intermediate_size = shared * size;
}

// Flags that the balancing type overrides, as in MindSpeed-LLM.
std::vector<std::string> notices_of_balancing(const TrainerConfig& config) {
  const MixtureOfExpertsConfig& moe = config.training;
  const core::TransformerConfig& model = config.model;
  const bool is_pai = has_balancing(moe, kPaiAuxLoss), by_best = has_balancing(moe, kGroupLimited);
  std::vector<std::string> notices;
  const auto tell = [&](bool given, const char* flags) {
    if (given)
      notices.push_back(core::cat(flags, " no effect with ", kTypes, " ", moe.moe_router_load_balancing_type.front(),
                                  ", as in MindSpeed-LLM"));
  };
  tell(model.moe_router_enable_expert_bias && model.moe_router_score_function == "softmax" &&
           !has_balancing(moe, kSoftmaxTopk),
       "--moe-router-enable-expert-bias without --moe-router-score-function sigmoid or sqrtsoftplus has");
  tell(moe.seq_aux && !has_balancing(moe, kSeqAuxLoss) && !by_best, "--seq-aux has");
  tell(is_pai && (model.moe_router_group_topk > 0 || model.moe_router_topk_scaling_factor != 1 || moe.norm_topk_prob),
       "--moe-router-num-groups, --moe-router-topk-scaling-factor and --norm-topk-prob have");
  tell(has_balancing(moe, kSparseMixer) && (moe.norm_topk_prob || model.moe_router_pre_softmax),
       "--norm-topk-prob and --moe-router-pre-softmax have");
  tell(by_best && moe.norm_topk_prob && model.moe_router_topk_scaling_factor != 1,
       "--moe-router-topk-scaling-factor and --norm-topk-prob together: the factor has");
  // transformers' DeepSeek-V2 is the other kind; with one choice a group both choose the same.
  const bool by_sum = model.moe_router_group_topk > 0 && !by_best && model.moe_router_score_function == "softmax";
  if (by_sum && model.moe_router_topk / model.moe_router_group_topk > 1)
    notices.push_back(core::cat("--moe-router-group-topk ranks groups by the sum of their ",
                                model.moe_router_topk / model.moe_router_group_topk,
                                " highest scores, as Megatron does; DeepSeek-V2 ranks them by the highest: ", kTypes,
                                " group_limited_greedy"));
  return notices;
}

std::vector<std::string> notices_of_experts(const TrainerConfig& config) {
  if (!trains_experts(config)) return {};
  std::vector<std::string> notices = notices_of_balancing(config);
  if (std::ranges::count(config.training.recompute_modules, "mlp") == 0) return notices;
  const std::vector<bool> layers = config.model.layers_with_experts();
  const bool all = std::ranges::count(layers, false) == 0;
  notices.push_back(core::cat("--recompute-modules mlp recomputes nothing of ", all ? "" : "the ",
                              std::ranges::count(layers, true), " layers with experts", all ? ": it has no effect" : "",
                              "; --recompute-activation-function or --recompute-granularity full does"));
  return notices;
}

Rule needs_experts(const char* flag, Condition given) { return needs(flag, given, "--num-experts", trains_experts); }

bool is_dense(const TrainerConfig& config) { return !config.model.has_experts(); }
bool drops_in_experts(const TrainerConfig& config) { return zero_memory_level(config.training) >= 0; }
bool recomputes_experts(const TrainerConfig& config) {
  return std::ranges::any_of(config.training.recompute_modules, [](const std::string& module) {
    return module == "moe" || module == "moe_act" || module == "shared_experts";
  });
}

// Flags with a default, which a script of a dense model may keep.
std::vector<Ineffective> flags_of_experts() {
  static const core::TransformerConfig plain;
  const auto without = [](const char* flag) { return core::cat(flag, " has no effect without --num-experts"); };
  using C = const TrainerConfig&;
  return {
      {[](C c) { return is_dense(c) && c.model.moe_router_topk != plain.moe_router_topk; },
       without("--moe-router-topk")},
      {[](C c) { return is_dense(c) && c.model.moe_router_pre_softmax; }, without("--moe-router-pre-softmax")},
      {[](C c) { return is_dense(c) && c.model.moe_router_score_function != plain.moe_router_score_function; },
       without("--moe-router-score-function")},
      {[](C c) { return is_dense(c) && c.model.moe_router_num_groups != 0; }, without("--moe-router-num-groups")},
      {[](C c) { return is_dense(c) && c.model.moe_router_topk_scaling_factor != 1; },
       without("--moe-router-topk-scaling-factor")},
      {[](C c) { return is_dense(c) && c.model.moe_ffn_hidden_size != 0; }, without("--moe-ffn-hidden-size")},
      {[](C c) { return is_dense(c) && c.model.moe_layer_freq != plain.moe_layer_freq; }, without("--moe-layer-freq")},
      {[](C c) { return is_dense(c) && c.model.moe_shared_expert_intermediate_size != 0; },
       without("--moe-shared-expert-intermediate-size")},
      {[](C c) { return is_dense(c) && !has_balancing(c.training, kAuxLoss); }, without(kTypes)},
      {[](C c) { return is_dense(c) && has_balance_losses(c.training); }, without("--moe-aux-loss-coeff")},
      {[](C c) { return is_dense(c) && c.training.moe_token_drop_policy != "probs"; },
       without("--moe-token-drop-policy")},
      {[](C c) { return is_dense(c) && c.training.norm_topk_prob; }, without("--norm-topk-prob")},
      {[](C c) { return is_dense(c) && c.training.moe_router_dtype != "fp32"; }, without("--moe-router-dtype")},
      {[](C c) { return is_dense(c) && c.training.fix_router; }, without("--fix-router")},
      {[](C c) { return is_dense(c) && c.training.seq_aux; }, without("--seq-aux")},
      {[](C c) {
         return c.training.moe_adaptive_recompute_activation_scale != 2 &&
                !c.training.moe_adaptive_recompute_activation;
       },
       "--moe-adaptive-recompute-activation-scale has no effect without --moe-adaptive-recompute-activation"},
      {[](C c) { return is_dense(c) && recomputes_experts(c); },
       without("--recompute-modules moe, moe_act or shared_experts")},
      {[](C c) { return is_dense(c) && c.training.moe_router_force_load_balancing; },
       without("--moe-router-force-load-balancing")},
      {[](C c) {
         const bool has_none = has_balancing(c.training, kSoftmaxTopk) ||
                               (has_balancing(c.training, kNoBalancing) && !c.training.seq_aux);
         return has_none && std::ranges::count(c.training.moe_aux_loss_coeff, 0.0) == 0;
       },
       "--moe-aux-loss-coeff has no effect with --moe-router-load-balancing-type softmax_topk or none, as in "
       "MindSpeed-LLM"},
  };
}

}  // namespace

bool has_balancing(const MixtureOfExpertsConfig& config, std::string_view type) {
  return std::ranges::count(config.moe_router_load_balancing_type, type) > 0;
}

bool gathers_tokens_of_microbatch(const MixtureOfExpertsConfig& config) {
  return config.moe_expert_capacity_factor.has_value() || has_balancing(config, kSinkhorn);
}

double balancing_coefficient(const MixtureOfExpertsConfig& config, std::string_view loss) {
  double sum = 0;
  for (size_t i = 0; i < std::min(config.moe_router_load_balancing_type.size(), config.moe_aux_loss_coeff.size());
       ++i) {
    std::string_view own = config.moe_router_load_balancing_type[i];
    if (own == kPaiAuxLoss) own = kAuxLoss;
    if (own == kGroupLimited) own = config.seq_aux ? kSeqAuxLoss : kAuxLoss;
    if (own == loss) sum += config.moe_aux_loss_coeff[i];
  }
  return sum;
}

bool has_balance_losses(const MixtureOfExpertsConfig& config) {
  return std::ranges::any_of(std::array{kAuxLoss, kSeqAuxLoss, kGlobalAuxLoss},
                             [&](std::string_view loss) { return balancing_coefficient(config, loss) != 0; });
}

int zero_memory_level(const MixtureOfExpertsConfig& config) {
  return config.moe_zero_memory == "level0" ? 0 : config.moe_zero_memory == "level1" ? 1 : -1;
}

Feature mixture_of_experts_feature() {
  return {
      .name = "mixture-of-experts",
      .level = 0,
      .effect = "Gives layers several MLPs, of which a router chooses a few for each token",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<MixtureOfExpertsConfig>("training", config.training); },
      .is_active = trains_experts,
      .rules = {needs_experts("--moe-zero-memory", drops_in_experts),
                needs_experts("--moe-adaptive-recompute-activation",
                              [](const TrainerConfig& c) { return c.training.moe_adaptive_recompute_activation; }),
                needs_experts("--moe-layer-recompute",
                              [](const TrainerConfig& c) { return c.training.moe_layer_recompute; }),
                needs(
                    "--moe-zero-memory-num-layers",
                    [](const TrainerConfig& c) { return c.training.moe_zero_memory_num_layers.has_value(); },
                    "--moe-zero-memory level1",
                    [](const TrainerConfig& c) { return c.training.moe_zero_memory == "level1"; }),
                excludes(
                    "--moe-zero-memory", drops_in_experts, "--moe-layer-recompute or --recompute-modules moe",
                    [](const TrainerConfig& c) {
                      return c.training.moe_layer_recompute ||
                             std::ranges::count(c.training.recompute_modules, "moe") > 0;
                    },
                    ", which drops all"),
                excludes(
                    "--fix-router", [](const TrainerConfig& c) { return c.training.fix_router; },
                    "--moe-router-force-load-balancing",
                    [](const TrainerConfig& c) { return c.training.moe_router_force_load_balancing; },
                    ", whose random choice it would replace"),
                needs_experts("--moe-z-loss-coeff",
                              [](const TrainerConfig& c) { return c.training.moe_z_loss_coeff.has_value(); }),
                needs_experts("--moe-expert-capacity-factor",
                              [](const TrainerConfig& c) { return c.training.moe_expert_capacity_factor.has_value(); }),
                needs_experts("--moe-input-jitter-eps",
                              [](const TrainerConfig& c) { return c.training.moe_input_jitter_eps.has_value(); }),
                needs_experts("--first-k-dense-replace",
                              [](const TrainerConfig& c) { return c.training.first_k_dense_replace.has_value(); }),
                needs_experts("--n-shared-experts",
                              [](const TrainerConfig& c) { return c.training.n_shared_experts.has_value(); })},
      .ineffective = flags_of_experts(),
      .resolve = resolve_experts,
      .check = check_experts,
      .notices = notices_of_experts,
  };
}

}  // namespace ms::train
