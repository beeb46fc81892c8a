// Weights kept in the order in which GEMM reads them (train/ops/packed_weight.h).
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct PackedWeightsConfig {
  bool packed_weights = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = PackedWeightsConfig;
    field("packed_weights", &C::packed_weights,
          "Cache GEMM-packed weights, repacked once per step (forward; with AMX also dgrad); faster for several "
          "micro-batches of few tokens, costs the weights' memory again");
  }
};

Feature packed_weights_feature();

}  // namespace ms::train
