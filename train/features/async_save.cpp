#include "train/features/async_save.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature async_save_feature() {
  return {
      .name = "async-save",
      .level = 0,
      .effect = "Writes checkpoints in the background from a copy of the state, for which alone a step waits",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<AsyncSaveConfig>("checkpoint", config.checkpoint); },
      .is_active = [](const TrainerConfig& c) { return !c.checkpoint.save.empty() && c.checkpoint.async_save; },
      .rules = {excludes(
                    "--no-async-save", [](const TrainerConfig& c) { return !c.checkpoint.async_save; },
                    "--ckpt-writer process",
                    [](const TrainerConfig& c) { return c.checkpoint.ckpt_writer == "process"; },
                    ": --no-async-save takes no snapshot"),
                excludes(
                    "--no-async-save", [](const TrainerConfig& c) { return !c.checkpoint.async_save; },
                    "--ckpt-lazy-snapshot", [](const TrainerConfig& c) { return c.checkpoint.ckpt_lazy_snapshot; },
                    ": --no-async-save takes no snapshot")},
      .check =
          [](const TrainerConfig& c, int) {
            require_one_of("--ckpt-overlap", c.checkpoint.ckpt_overlap, {"wait", "skip"});
            const int buffers = c.checkpoint.ckpt_staging_buffers;
            require(buffers == 1 || buffers == 2, "--ckpt-staging-buffers ", buffers, ": 1 or 2");
          },
  };
}

}  // namespace ms::train
