#include "train/features/optimizer_instances.h"

#include "core/layout/process_group_table.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kInstances = "--num-distributed-optimizer-instances";
constexpr const char* kOuterStrategy = "--outer-dp-sharding-strategy";
constexpr const char* kShardSize = "--optimizer-weight-shard-size";

bool has_instances(const TrainerConfig& config) { return config.parallel.num_distributed_optimizer_instances > 1; }

// What the user has said of their number or size.
std::string asked_by(const TrainerConfig& config) {
  const std::optional<int64_t> size = config.parallel.optimizer_weight_shard_size;
  if (config.parallel.layerzero)
    return core::cat("zero3_size of --layerzero-config (", size.value_or(0), " data-parallel ranks)");
  if (size) return core::cat(kShardSize, " ", *size);
  return core::cat(kInstances, " ", config.parallel.num_distributed_optimizer_instances);
}

void check_instances(const TrainerConfig& config, int world_size) {
  const int instances = config.parallel.num_distributed_optimizer_instances;
  require(instances > 0, kInstances, " ", instances, ": at least 1");
  require_one_of(kOuterStrategy, config.parallel.outer_dp_sharding_strategy, {"", "no_shard", "optim"});
  const layout::RankGrid grid = config.grid(world_size);
  const int ranks = grid.dp;
  if (const std::optional<int64_t> size = config.parallel.optimizer_weight_shard_size) {
    require(*size == -1 || *size > 0, kShardSize, " ", *size, ": at least 1, or -1 for all data-parallel ranks");
    require(*size == -1 || ranks % *size == 0, asked_by(config), " does not divide the data-parallel size ", ranks);
    require(instances == (*size == -1 ? 1 : ranks / *size), kShardSize, " ", *size, " of ", ranks,
            " data-parallel ranks and ", kInstances, " ", instances, ": give one of both");
  }
  if (instances == 1) return;
  require(ranks % instances == 0, kInstances, " ", instances, " does not divide the data-parallel size ", ranks);
  require(ranks > instances || grid.cp > 1, "instances of one rank each (", asked_by(config), " on ", ranks,
          " data-parallel ranks) divide nothing: ",
          config.parallel.outer_dp_sharding_strategy == "optim"
              ? "--use-distributed-optimizer alone divides the optimizer's state over all ranks"
              : "leave out what divides the state");
  if (!config.model.has_experts() || !layout::experts_apart(grid)) return;
  require(grid.expert_dp() % instances == 0, kInstances, " ", instances, " does not divide the ", grid.expert_dp(),
          " data-parallel ranks of an expert (--expert-model-parallel-size ", grid.ep,
          ", --expert-tensor-parallel-size ", grid.etp, ")");
}

}  // namespace

void resolve_instances(ModelParallelConfig& config, int dp) {
  // zero3_size may be above the number of ranks.
  if (config.layerzero && config.optimizer_weight_shard_size.value_or(0) > dp) config.optimizer_weight_shard_size = dp;
  const int64_t size = config.optimizer_weight_shard_size.value_or(-1);
  if (size > 0 && dp % size == 0 && config.num_distributed_optimizer_instances == 1)
    config.num_distributed_optimizer_instances = static_cast<int>(dp / size);
}

Feature optimizer_instances_feature() {
  return {
      .name = "optimizer-instances",
      .level = 0,
      .effect =
          "Divides the optimizer's state over the DP ranks of each instance: weights are gathered within it, and a "
          "rank's own part of the gradients is summed over the instances, or with --outer-dp-sharding-strategy optim "
          "divided over them with the state",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<OptimizerInstancesConfig>("parallel", config.parallel);
            // Of older versions of Megatron-FSDP.
            fields.alias("enable-full-sharding-in-hsdp", "outer_dp_sharding_strategy", "optim");
          },
      .is_active = has_instances,
      .rules = {needs(
                    kShardSize,
                    [](const TrainerConfig& c) { return c.parallel.optimizer_weight_shard_size.has_value(); },
                    "--use-distributed-optimizer",
                    [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
                    ": without it nothing is divided"),
                needs(
                    kInstances, has_instances, "--use-distributed-optimizer",
                    [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
                    ": without it nothing is divided"),
                needs(
                    "--outer-dp-sharding-strategy optim",
                    [](const TrainerConfig& c) {
                      return has_instances(c) && c.parallel.outer_dp_sharding_strategy == "optim";
                    },
                    "--data-parallel-sharding-strategy optim_grads_params",
                    [](const TrainerConfig& c) { return zero_stage(c.parallel) == 3; },
                    ", as in Megatron: what is divided over the instances are parts of an instance's ranks")},
      .ineffective = {{[](const TrainerConfig& c) {
                         return c.parallel.outer_dp_sharding_strategy == "optim" && !has_instances(c) &&
                                !c.parallel.layerzero;
                       },
                       "--outer-dp-sharding-strategy has no effect without --num-distributed-optimizer-instances, as "
                       "in Megatron: there is one instance"}},
      .check = check_instances,
  };
}

}  // namespace ms::train
