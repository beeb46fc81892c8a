// Compares the weights of data-parallel replicas: --check-weight-hash-across-dp-replicas-interval.
#pragma once

#include "train/features/weight_hash.h"
#include "train/model/parameters.h"
#include "train/optim/optimizer.h"
#include "train/parallel/process_groups.h"

namespace ms::train {

// Collective over all ranks. Throws kInternal on all of them if a weight differs in a bit between ranks that reduce
// gradients together: "decoder.layers.0.mlp.linear_fc1.weight: rank [3] differs from ranks [1, 5]". Of two replicas
// both are named. Cost: a hash of the weights, and 8 bytes of each parameter from every replica.
void check_weight_hashes(const ParameterStore& parameters, ProcessGroups& groups);

// When: before the first step, and after every --check-weight-hash-across-dp-replicas-interval steps.
class ReplicaCheck {
 public:
  // All outlive the object. optimizer: its gathers may be under way.
  ReplicaCheck(const WeightHashConfig& config, const ParameterStore& parameters, ProcessGroups& groups,
               Optimizer& optimizer)
      : interval_(config.check_weight_hash_across_dp_replicas_interval),
        parameters_(parameters),
        groups_(groups),
        optimizer_(optimizer) {}
  // Collective: before the first step and after every one. iteration: complete so far.
  void at(int64_t iteration);

 private:
  int64_t interval_;
  const ParameterStore& parameters_;
  ProcessGroups& groups_;
  Optimizer& optimizer_;
  bool first_ = true;
};

}  // namespace ms::train
