#include "train/features/optimizer_instances.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kInstances = "--num-distributed-optimizer-instances";
constexpr const char* kOuterStrategy = "--outer-dp-sharding-strategy";

bool has_instances(const TrainerConfig& config) { return config.parallel.num_distributed_optimizer_instances > 1; }

void check_instances(const TrainerConfig& config, int world_size) {
  const int instances = config.parallel.num_distributed_optimizer_instances;
  require(instances > 0, kInstances, " ", instances, ": at least 1");
  require_one_of(kOuterStrategy, config.parallel.outer_dp_sharding_strategy, {"no_shard", "optim"});
  if (config.parallel.outer_dp_sharding_strategy == "optim" && has_instances(config)) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat(kOuterStrategy, " optim with ", kInstances, " ", instances,
                                ": state that is divided over the instances while weights are divided within them is "
                                "not implemented. Give no_shard, or ",
                                kInstances, " 1"));
  }
  if (instances == 1) return;
  const int ranks = config.grid(world_size).dp;
  require(ranks % instances == 0, kInstances, " ", instances, " does not divide the data-parallel size ", ranks);
  require(ranks > instances, kInstances, " ", instances, " leaves each of ", ranks,
          " data-parallel ranks all of the state: leave out --use-distributed-optimizer");
}

}  // namespace

Feature optimizer_instances_feature() {
  return {
      .name = "optimizer-instances",
      .level = 0,
      .effect =
          "Divides the optimizer's state over the DP ranks of each instance: weights are gathered within it, and a "
          "rank's own part of the gradients is summed over the instances",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<OptimizerInstancesConfig>("parallel", config.parallel); },
      .is_active = has_instances,
      .rules = {needs(
                    kInstances, has_instances, "--use-distributed-optimizer",
                    [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
                    ": without it nothing is divided"),
                excludes(
                    kInstances, has_instances, "--expert-model-parallel-size or --expert-tensor-parallel-size",
                    [](const TrainerConfig& c) {
                      return c.model.has_experts() &&
                             (c.parallel.expert_model_parallel_size > 1 ||
                              expert_tensor_parallel_size(c.parallel) != c.parallel.tensor_model_parallel_size);
                    },
                    ", where other ranks hold the experts of a layer than its rest")},
      .ineffective = {{[](const TrainerConfig& c) {
                         return c.parallel.outer_dp_sharding_strategy != "no_shard" && !has_instances(c);
                       },
                       "--outer-dp-sharding-strategy has no effect without --num-distributed-optimizer-instances, as "
                       "in Megatron: there is one instance"}},
      .check = check_instances,
  };
}

}  // namespace ms::train
