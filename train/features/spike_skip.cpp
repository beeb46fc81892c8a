#include "train/features/spike_skip.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature spike_skip_feature() {
  return {
      .name = "spike-skip",
      .level = 0,
      .effect = "Skips a step whose loss or gradient norm is far above its recent mean",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SpikeSkipConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.spike_skip_factor > 0; },
      .check =
          [](const TrainerConfig& c, int) {
            require(c.training.spike_skip_factor == 0 || c.training.spike_skip_factor > 1, "--spike-skip-factor ",
                    c.training.spike_skip_factor, ": expected a number above 1, or 0 for none");
            require(c.training.spike_skip_window > 0, "--spike-skip-window ", c.training.spike_skip_window,
                    ": at least 1");
          },
  };
}

}  // namespace ms::train
