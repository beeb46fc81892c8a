// The output of the MLP's activation function recomputed in backward. Source: MindSpeed's
// --recompute-activation-function (mindspeed/features_manager/recompute).
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct RecomputeActivationFunctionConfig {
  bool recompute_activation_function = false;
  int64_t recompute_activation_function_num_layers = 0;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = RecomputeActivationFunctionConfig;
    field("recompute_activation_function", &C::recompute_activation_function,
          "Drop the output of the MLP's activation after linear_fc2 has read it, and compute it again in backward; "
          "saves memory for under 1 % of a step");
    field("recompute_activation_function_num_layers", &C::recompute_activation_function_num_layers,
          "Layers of a stage for --recompute-activation-function, counted after those recomputed whole; 0: all");
  }
};

Feature recompute_activation_function_feature();

}  // namespace ms::train
