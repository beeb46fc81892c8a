// The optimizer's state outside memory between updates. Source: MindSpeed's --swap-optimizer
// (mindspeed/features_manager/optimizer/swap_optimizer_feature.py), whose tier is the host's memory; here it is the
// file of --swap-attention.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct SwapOptimizerConfig {
  bool swap_optimizer = false;
  int64_t swap_optimizer_times = 16;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SwapOptimizerConfig;
    field(
        "swap_optimizer", &C::swap_optimizer,
        "Keep the optimizer's state (master weights and moments, 12 bytes of each parameter that this rank updates) in "
        "a file in the folder of --swap-dir during forward and backward; an update reads and writes it in "
        "--swap-optimizer-times chunks. For runs whose state does not fit beside activations; needs a disk that "
        "moves 24 bytes a parameter in each step");
    field("swap_optimizer_times", &C::swap_optimizer_times,
          "For --swap-optimizer: chunks of the state, of which an update has three in memory. More of them: less "
          "memory, smaller requests");
  }
};

Feature swap_optimizer_feature();

}  // namespace ms::train
