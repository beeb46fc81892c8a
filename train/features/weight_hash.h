// Compares the weights of data-parallel replicas, which must be equal to the bit. Source: Megatron's
// check_param_hashes_across_dp_replicas (megatron/core/utils.py).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct WeightHashConfig {
  int64_t check_weight_hash_across_dp_replicas_interval = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = WeightHashConfig;
    field("check_weight_hash_across_dp_replicas_interval", &C::check_weight_hash_across_dp_replicas_interval,
          "Steps between comparisons of the weights' hashes over data-parallel replicas, the first before the first "
          "step; a difference (defective memory, a bug) names rank and parameter and ends the run. Costs a pass over "
          "the weights. 0: never");
  }
};

Feature weight_hash_feature();

}  // namespace ms::train
