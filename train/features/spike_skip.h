// Steps whose loss or gradient norm jumps are not applied. Source: PaLM (arXiv 2204.02311, section 5.1), which skips
// the batches around a spike.
#pragma once

#include <cstdint>

#include "train/features/feature.h"

namespace ms::train {

struct SpikeSkipConfig {
  double spike_skip_factor = 0;
  int64_t spike_skip_window = 100;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = SpikeSkipConfig;
    field("spike_skip_factor", &C::spike_skip_factor,
          "Skip a step whose loss or gradient norm is above this factor times its recent mean; 0: off");
    field("spike_skip_window", &C::spike_skip_window,
          "Applied steps in the mean of --spike-skip-factor; as many skipped steps in a row end the run");
  }
};

Feature spike_skip_feature();

}  // namespace ms::train
