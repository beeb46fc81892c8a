// MindSpeed's LayerZeRO: ZeRO-3 within groups of zero3_size ranks, and master weights and optimizer state divided over
// all data-parallel ranks. Another name for --use-megatron-fsdp with instances (optimizer_instances.h) whose state is
// divided over them, too.
// Source: mindspeed/core/distributed/layerzero/config.py.
#pragma once

#include <string>

#include "train/features/feature.h"

namespace ms::train {

struct LayerZeroConfig {
  bool layerzero = false;
  std::string layerzero_config;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = LayerZeroConfig;
    field("layerzero", &C::layerzero,
          "MindSpeed's LayerZeRO, by --use-megatron-fsdp: weights and gradients are divided within groups of ranks, "
          "master weights and optimizer state over all data-parallel ranks (--outer-dp-sharding-strategy optim). Needs "
          "--layerzero-config");
    field("layerzero_config", &C::layerzero_config,
          "With --layerzero: a YAML file with zero3_size, the ranks of a stage that divide weights (8 if it is not "
          "there), param_dtype and reduce_dtype; of other keys the log says why they change nothing");
  }
};

Feature layerzero_feature();

}  // namespace ms::train
