// Several instances of the distributed optimizer: the data-parallel ranks are divided into runs of neighbours, each of
// which divides master weights and optimizer state, with --data-parallel-sharding-strategy gradients and weights too,
// over its own ranks; what a rank owns of the gradients is summed over the instances (train/optim/bucket.h). Between
// instances, such as nodes, only that is sent.
// Sources: megatron/core/distributed/param_and_grad_buffer.py (inter_distributed_optimizer_instance_group); hybrid
// sharding of arXiv 2304.11277, section 3.2.2; MindSpore's hsdp(shard_size).
#pragma once

#include <optional>
#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct ModelParallelConfig;

struct OptimizerInstancesConfig {
  int num_distributed_optimizer_instances = 1;
  std::string outer_dp_sharding_strategy;  // empty: no_shard
  std::optional<int64_t> optimizer_weight_shard_size;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = OptimizerInstancesConfig;
    field("num_distributed_optimizer_instances", &C::num_distributed_optimizer_instances,
          "With --use-distributed-optimizer: so many runs of neighbouring data-parallel ranks divide the state of the "
          "optimizer each for itself (HSDP). More memory than 1, but weights are gathered within an instance, and "
          "between instances only a rank's own part of the gradients is summed: for slow links between nodes");
    field("outer_dp_sharding_strategy", &C::outer_dp_sharding_strategy,
          "What instances divide among each other: no_shard (the default: nothing; each has all of the state), or with "
          "--data-parallel-sharding-strategy optim_grads_params optim (HFSDP: master weights and optimizer state, of "
          "which each rank then has as much as with one instance; new weights are gathered over the instances once a "
          "step)");
    field("optimizer_weight_shard_size", &C::optimizer_weight_shard_size,
          "MindSpore's word for the same: data-parallel ranks of an instance; -1: all");
  }
};

// Instances of which each has as many ranks as --optimizer-weight-shard-size says, if they divide dp.
void resolve_instances(ModelParallelConfig& config, int dp);

Feature optimizer_instances_feature();

}  // namespace ms::train
