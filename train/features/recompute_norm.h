// The outputs of the norms before attention and MLP recomputed in backward. Source: MindSpeed's
// --recompute-norm (mindspeed/features_manager/recompute).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct RecomputeNormConfig {
  bool recompute_norm = false;
  int64_t recompute_norm_num_layers = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RecomputeNormConfig;
    field("recompute_norm", &C::recompute_norm,
          "Drop the outputs of the norms before attention and MLP, and compute them again in backward; saves "
          "memory for under 1 % of a step");
    field("recompute_norm_num_layers", &C::recompute_norm_num_layers,
          "Layers of a stage for --recompute-norm, counted after those recomputed whole; 0: all");
  }
};

Feature recompute_norm_feature();

}  // namespace ms::train
