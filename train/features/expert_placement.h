// Experts move between the ranks of their expert-parallel group, so that the load of these is even. Source: MindSpeed,
// mindspeed/features_manager/moe/experts_placement.py and mindspeed/core/transformer/moe/expert_placement.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct ExpertPlacementConfig {
  bool enable_expert_placement = false;
  int64_t expert_placement_freq = 50;
  bool enable_fine_grained_expert_placement = false;
  double fine_grained_expert_placement_thre = 0.08;
  bool print_expert_load = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = ExpertPlacementConfig;
    field("enable_expert_placement", &C::enable_expert_placement,
          "Move experts between the ranks of a layer, with their optimizer state, so that ranks have the same load: by "
          "a moving average of the tokens of each expert");
    field("expert_placement_freq", &C::expert_placement_freq,
          "With --enable-expert-placement: steps from one such move to the next");
    field(
        "enable_fine_grained_expert_placement", &C::enable_fine_grained_expert_placement,
        "With --enable-expert-placement: the experts of a layer move only if that lowers the coefficient of variation "
        "of its ranks' load by --fine-grained-expert-placement-thre at least; off: if it lowers it at all");
    field("fine_grained_expert_placement_thre", &C::fine_grained_expert_placement_thre,
          "With --enable-fine-grained-expert-placement: by how much the coefficient of variation must fall");
    field("print_expert_load", &C::print_expert_load,
          "Also log, every --log-interval steps and for each layer with experts, how many tokens each EP rank's "
          "experts received in that step");
  }
};

// Whether experts move in a run.
bool places_experts(const TrainerConfig& config);

Feature expert_placement_feature();

}  // namespace ms::train
