#include "train/features/local_checkpoints.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void check_local_checkpoints(const TrainerConfig& config, int) {
  const LocalCheckpointsConfig& local = config.checkpoint;
  const std::string& type = local.non_persistent_ckpt_type;
  require_one_of("--non-persistent-ckpt-type", type, {"", "local"},
                 "; for frequent saves of which few stay, use --save-interval and --save-keep-last");
  require(local.non_persistent_save_interval >= 0, "--non-persistent-save-interval ",
          local.non_persistent_save_interval, ": at least 0");
  require(type.empty() == local.non_persistent_local_ckpt_dir.empty(),
          "--non-persistent-ckpt-type local and --non-persistent-local-ckpt-dir go together");
  require(type.empty() || config.checkpoint.save_optim,
          "--no-save-optim: a local checkpoint is there to go on from, and has the optimizer's state");
}

}  // namespace

Feature local_checkpoints_feature() {
  return {
      .name = "local-checkpoints",
      .level = 0,
      .effect = "Keeps each rank's newest state in its node between saves: a killed job loses less work",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<LocalCheckpointsConfig>("checkpoint", config.checkpoint); },
      .is_active = [](const TrainerConfig& c) { return !c.checkpoint.non_persistent_ckpt_type.empty(); },
      .rules = {needs(
          "--non-persistent-save-interval",
          [](const TrainerConfig& c) { return c.checkpoint.non_persistent_save_interval > 0; },
          "--non-persistent-ckpt-type local",
          [](const TrainerConfig& c) { return !c.checkpoint.non_persistent_ckpt_type.empty(); })},
      .check = check_local_checkpoints,
  };
}

}  // namespace ms::train
