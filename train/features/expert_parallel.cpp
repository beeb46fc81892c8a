#include "train/features/expert_parallel.h"

#include <algorithm>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kDispatcher = "--moe-token-dispatcher-type";

bool has_experts(const TrainerConfig& config) { return config.model.has_experts(); }

Rule needs_num_experts(const char* flag, Condition given) { return needs(flag, given, "--num-experts", has_experts); }

bool extends_ep(const TrainerConfig& config) { return config.parallel.moe_tp_extend_ep; }
bool overlaps_alltoall(const TrainerConfig& config) { return config.parallel.moe_alltoall_overlap_comm; }
bool overlaps_allgather(const TrainerConfig& config) { return config.parallel.moe_allgather_overlap_comm; }
bool gives_groups(const TrainerConfig& config) { return config.parallel.moe_experts_pipeline_degree != 0; }
bool runs_experts_again(const TrainerConfig& config) {
  const TrainingConfig& training = config.training;
  return training.moe_layer_recompute || zero_memory_level(training) >= 0 ||
         training.moe_adaptive_recompute_activation || std::ranges::count(training.recompute_modules, "moe") > 0;
}
bool gives_hierarchical(const TrainerConfig& config) { return config.parallel.moe_hierarchical_alltoallv; }
bool overlaps_shared(const TrainerConfig& config) { return config.parallel.moe_shared_expert_overlap; }

constexpr const char* kOverlapAlltoall = "--moe-alltoall-overlap-comm";
constexpr const char* kOverlapAllgather = "--moe-allgather-overlap-comm";
constexpr const char* kOverlapShared = "--moe-shared-expert-overlap";
constexpr const char* kPipelined = "--moe-experts-pipeline-degree";
constexpr const char* kHierarchical = "--moe-hierarchical-alltoallv";

std::vector<Rule> rules_of_expert_parallel() {
  return {
      needs_num_experts("--expert-model-parallel-size",
                        [](const TrainerConfig& c) { return c.parallel.expert_model_parallel_size > 1; }),
      needs_num_experts("--expert-tensor-parallel-size",
                        [](const TrainerConfig& c) { return c.parallel.expert_tensor_parallel_size.value_or(1) > 1; }),
      excludes(
          "--moe-tp-extend-ep", extends_ep, "--expert-tensor-parallel-size",
          [](const TrainerConfig& c) { return c.parallel.expert_tensor_parallel_size.value_or(1) != 1; },
          ": it leaves experts whole"),
      needs(kOverlapAlltoall, overlaps_alltoall, "--moe-token-dispatcher-type alltoall",
            [](const TrainerConfig& c) { return !gathers_tokens(c.parallel); }),
      needs(kOverlapAllgather, overlaps_allgather, "--moe-token-dispatcher-type allgather",
            [](const TrainerConfig& c) { return gathers_tokens(c.parallel); }),
      needs_num_experts(kPipelined, gives_groups),
      needs(kPipelined, gives_groups, "--moe-token-dispatcher-type alltoall",
            [](const TrainerConfig& c) { return !gathers_tokens(c.parallel); }),
      excludes(
          kPipelined, gives_groups, "--moe-hierarchical-alltoallv or --moe-fb-overlap",
          [](const TrainerConfig& c) { return gives_hierarchical(c) || c.parallel.moe_fb_overlap; },
          ", which have an order of their own"),
      excludes(
          kPipelined, gives_groups,
          "--moe-zero-memory, --moe-adaptive-recompute-activation, --moe-layer-recompute or --recompute-modules moe",
          runs_experts_again, ": rows of a group travel once"),
      needs(kHierarchical, gives_hierarchical, "--moe-tp-extend-ep", extends_ep),
      needs(kHierarchical, gives_hierarchical, "--moe-token-dispatcher-type alltoall",
            [](const TrainerConfig& c) { return !gathers_tokens(c.parallel); }),
      excludes(
          kHierarchical, gives_hierarchical, "--moe-fb-overlap",
          [](const TrainerConfig& c) { return c.parallel.moe_fb_overlap; },
          ", whose sub-steps have one exchange each")};
}

// What does nothing where no token travels, and by what flag it is given.
std::vector<Ineffective> ineffective_expert_flags() {
  const auto text = [](const char* flag) {
    return core::cat(flag, " has no effect: no token leaves a rank that has all experts");
  };
  return {
      {[](const TrainerConfig& c) { return gathers_tokens(c.parallel) && has_experts(c) && !dispatches_tokens(c); },
       text("--moe-token-dispatcher-type allgather")},
      {[](const TrainerConfig& c) { return overlaps_alltoall(c) && !dispatches_tokens(c); }, text(kOverlapAlltoall)},
      {[](const TrainerConfig& c) { return overlaps_allgather(c) && !dispatches_tokens(c); }, text(kOverlapAllgather)},
      {[](const TrainerConfig& c) { return overlaps_shared(c) && !dispatches_tokens(c); }, text(kOverlapShared)},
      {[](const TrainerConfig& c) { return extends_ep(c) && c.parallel.tensor_model_parallel_size == 1; },
       "--moe-tp-extend-ep has no effect with --tensor-model-parallel-size 1"},
      {[](const TrainerConfig& c) { return gives_groups(c) && has_experts(c) && !dispatches_tokens(c); },
       text(kPipelined)},
      {[](const TrainerConfig& c) { return gives_hierarchical(c) && !exchanges_hierarchically(c); },
       core::cat(
           kHierarchical,
           " has no effect unless --tensor-model-parallel-size and --expert-model-parallel-size are above 1: there "
           "is one block of experts, or one rank in each")}};
}

std::vector<std::string> notices_of_overlap(const TrainerConfig& config) {
  const bool has_shared = config.model.moe_shared_expert_intermediate_size > 0;
  if (!overlaps_shared(config) || !dispatches_tokens(config) || has_shared) return {};
  return {"--moe-shared-expert-overlap has no effect without shared experts"};
}

void check(const TrainerConfig& config, int world_size) {
  const ModelParallelConfig& parallel = config.parallel;
  require_one_of(kDispatcher, parallel.moe_token_dispatcher_type, {"alltoall", "allgather", "alltoall_seq"});
  require(parallel.expert_model_parallel_size > 0, "--expert-model-parallel-size ", parallel.expert_model_parallel_size,
          ": give a positive number");
  const int tp = parallel.tensor_model_parallel_size, ep = expert_model_parallel_size(parallel);
  const int etp = expert_tensor_parallel_size(parallel);
  require(parallel.expert_tensor_parallel_size.value_or(1) > 0, "--expert-tensor-parallel-size ",
          parallel.expert_tensor_parallel_size.value_or(1), ": give a positive number");
  const int64_t groups = parallel.moe_experts_pipeline_degree;
  require(groups == 0 || groups >= 2, kPipelined, " ", groups, ": at least 2, or 0 for none");
  if (!has_experts(config)) return;
  require(groups == 0 || config.model.num_experts / ep % groups == 0, kPipelined, " ", groups,
          ": not a divisor of the ", config.model.num_experts / ep, " experts of a rank");
  const layout::RankGrid grid = config.grid(world_size);
  require(int64_t{tp} * grid.replicas() % (int64_t{ep} * etp) == 0, "--expert-model-parallel-size ", ep,
          parallel.moe_tp_extend_ep ? " (with --moe-tp-extend-ep)" : "", " x --expert-tensor-parallel-size ", etp,
          ": not a divisor of --tensor-model-parallel-size ", tp,
          grid.cp > 1 ? core::cat(" x --context-parallel-size ", grid.cp) : "", " x data-parallel size ", grid.dp);
  const int64_t exchanging = int64_t{ep} * etp;
  const bool gathers = gathers_tokens_of_microbatch(config.training);
  const int64_t sharing = gathers ? int64_t{tp} * grid.cp : tp;
  require(!config.training.moe_adaptive_recompute_activation || exchanging % sharing == 0 || sharing % exchanging == 0,
          "--moe-adaptive-recompute-activation with ", exchanging,
          " ranks that exchange tokens (--expert-model-parallel-size x --expert-tensor-parallel-size) and ", sharing,
          " that share a micro-batch (--tensor-model-parallel-size",
          gathers ? " x --context-parallel-size, because of a capacity or sinkhorn" : "",
          "): both decide together what to keep; give numbers of which one divides the other");
  require(tp == 1 || parallel.sequence_parallel, "--num-experts with --tensor-model-parallel-size ", tp,
          " needs --sequence-parallel: each rank sends tokens of its own to their experts");
}

}  // namespace

int expert_model_parallel_size(const ModelParallelConfig& config) {
  const int64_t factor = config.moe_tp_extend_ep ? config.tensor_model_parallel_size : 1;
  return static_cast<int>(std::min<int64_t>(factor * config.expert_model_parallel_size, INT32_MAX));
}

int expert_tensor_parallel_size(const ModelParallelConfig& config) {
  if (config.moe_tp_extend_ep) return 1;
  const int64_t given = config.expert_tensor_parallel_size.value_or(config.tensor_model_parallel_size);
  return static_cast<int>(std::clamp<int64_t>(given, 1, INT32_MAX));
}

bool dispatches_tokens(const TrainerConfig& config) {
  const ModelParallelConfig& parallel = config.parallel;
  return has_experts(config) && expert_model_parallel_size(parallel) * expert_tensor_parallel_size(parallel) > 1;
}

bool gathers_tokens(const ExpertParallelConfig& config) { return config.moe_token_dispatcher_type == "allgather"; }

bool exchanges_hierarchically(const TrainerConfig& config) {
  return gives_hierarchical(config) && extends_ep(config) && has_experts(config) &&
         config.parallel.tensor_model_parallel_size > 1 && config.parallel.expert_model_parallel_size > 1;
}

int64_t groups_of_experts(const TrainerConfig& config) {
  return dispatches_tokens(config) ? std::max<int64_t>(1, config.parallel.moe_experts_pipeline_degree) : 1;
}

layout::ExpertOverlap expert_overlap(const TrainerConfig& config) {
  if (!dispatches_tokens(config)) return {};
  const bool weights = overlaps_alltoall(config) || overlaps_allgather(config);
  return {.shared_experts = weights || overlaps_shared(config), .weight_gradients = weights};
}

Feature expert_parallel_feature() {
  return {
      .name = "expert-parallel",
      .level = 0,
      .effect =
          "Distributes the experts of a layer over EP ranks: their weights, gradients and moments shrink by EP, for an "
          "exchange of tokens before and behind them, which the overlap flags hide without changing a bit",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ExpertParallelConfig>("parallel", config.parallel); },
      .is_active = dispatches_tokens,
      .rules = rules_of_expert_parallel(),
      .ineffective = ineffective_expert_flags(),
      .check = check,
      .notices = notices_of_overlap,
  };
}

}  // namespace ms::train
