// ZeRO-1: each data-parallel rank holds and updates its part of the optimizer state.
// Source: arXiv 1910.02054; megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct DistributedOptimizerConfig {
  bool use_distributed_optimizer = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = DistributedOptimizerConfig;
    field("use_distributed_optimizer", &C::use_distributed_optimizer,
          "Spread optimizer state and master weights over the data-parallel ranks (ZeRO-1)");
  }
};

Feature distributed_optimizer_feature();

}  // namespace ms::train
