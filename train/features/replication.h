// Replicas of local checkpoints on other ranks. Source: Megatron's --replication (NVIDIA Resiliency Extension).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct ReplicationConfig {
  bool replication = false;
  int64_t replication_jump = 0;
  int64_t replication_factor = 2;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ReplicationConfig;
    field("replication", &C::replication,
          "Other ranks keep replicas of each rank's local checkpoint, in case a node is lost");
    field("replication_jump", &C::replication_jump,
          "Distance between ranks that exchange replicas: the number of ranks that fail together, such as those of "
          "a node");
    field("replication_factor", &C::replication_factor, "Ranks that hold each local checkpoint, its owner included");
  }
};

Feature replication_feature();

}  // namespace ms::train
