#include "train/features/expert_parallel.h"

#include <algorithm>

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kDispatcher = "--moe-token-dispatcher-type";

bool has_experts(const TrainerConfig& config) { return config.model.has_experts(); }

Rule needs_num_experts(const char* flag, Condition given) { return needs(flag, given, "--num-experts", has_experts); }

void check(const TrainerConfig& config, int world_size) {
  const ModelParallelConfig& parallel = config.parallel;
  require_one_of(kDispatcher, parallel.moe_token_dispatcher_type, {"alltoall", "allgather", "alltoall_seq"});
  const int tp = parallel.tensor_model_parallel_size, ep = parallel.expert_model_parallel_size;
  const int etp = expert_tensor_parallel_size(parallel);
  require(ep > 0, "--expert-model-parallel-size ", ep, ": give a positive number");
  require(parallel.expert_tensor_parallel_size.value_or(1) > 0, "--expert-tensor-parallel-size ",
          parallel.expert_tensor_parallel_size.value_or(1), ": give a positive number");
  if (!has_experts(config)) return;
  const int dp = config.grid(world_size).dp;
  require(int64_t{tp} * dp % (int64_t{ep} * etp) == 0, "--expert-model-parallel-size ", ep,
          " x --expert-tensor-parallel-size ", etp, ": not a divisor of --tensor-model-parallel-size ", tp,
          " x data-parallel size ", dp);
  require(tp == 1 || parallel.sequence_parallel, "--num-experts with --tensor-model-parallel-size ", tp,
          " needs --sequence-parallel: each rank sends tokens of its own to their experts");
}

}  // namespace

int expert_tensor_parallel_size(const ModelParallelConfig& config) {
  const int64_t given = config.expert_tensor_parallel_size.value_or(config.tensor_model_parallel_size);
  return static_cast<int>(std::clamp<int64_t>(given, 1, INT32_MAX));
}

bool dispatches_tokens(const TrainerConfig& config) {
  const ModelParallelConfig& parallel = config.parallel;
  return has_experts(config) && parallel.expert_model_parallel_size * expert_tensor_parallel_size(parallel) > 1;
}

bool gathers_tokens(const ExpertParallelConfig& config) { return config.moe_token_dispatcher_type == "allgather"; }

Feature expert_parallel_feature() {
  return {
      .name = "expert-parallel",
      .level = 0,
      .effect =
          "Distributes the experts of a layer over EP ranks: their weights, gradients and moments shrink by EP, for an "
          "exchange of tokens before and behind them",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ExpertParallelConfig>("parallel", config.parallel); },
      .is_active = dispatches_tokens,
      .rules = {needs_num_experts("--expert-model-parallel-size",
                                  [](const TrainerConfig& c) { return c.parallel.expert_model_parallel_size > 1; }),
                needs_num_experts(
                    "--expert-tensor-parallel-size",
                    [](const TrainerConfig& c) { return c.parallel.expert_tensor_parallel_size.value_or(1) > 1; })},
      .ineffective = {{[](const TrainerConfig& c) {
                         return gathers_tokens(c.parallel) && has_experts(c) && !dispatches_tokens(c);
                       },
                       "--moe-token-dispatcher-type allgather has no effect: no token leaves a rank that has all "
                       "experts"}},
      .check = check,
  };
}

}  // namespace ms::train
