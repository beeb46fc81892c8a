// The mean of gradients over replicas, formed by the collective that adds them up, instead of by the loss.
// Source: megatron/core/distributed/distributed_data_parallel.py (average_in_collective).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct DdpAverageConfig {
  bool ddp_average_in_collective = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("ddp_average_in_collective", &DdpAverageConfig::ddp_average_in_collective,
          "Divide gradients by the number of replicas where they are added up, instead of dividing the loss before the "
          "backward. The bits are the same where that number is a power of two (except for gradients too small for "
          "fp16), otherwise equal to rounding");
  }
};

Feature ddp_average_feature();

}  // namespace ms::train
