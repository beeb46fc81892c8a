#include "train/features/profile.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void check_profile(const TrainerConfig& config, int world_size) {
  const ProfilingConfig& p = config.profiling;
  require(!p.profile || p.profile_step_start < p.profile_step_end, "--profile-step-start ", p.profile_step_start,
          " must be below --profile-step-end ", p.profile_step_end);
  require_one_of("--profile-level", p.profile_level, {"level0", "level1", "level2"});
  require_one_of("--profile-format", p.profile_format, {"native", "json", "json.gz", "json.zst"});
  for (int64_t rank : p.profile_ranks) {
    require(!p.profile || (rank >= -1 && rank < world_size), "--profile-ranks ", rank, ": ranks are 0 to ",
            world_size - 1, ", or -1 for all");
  }
}

}  // namespace

Feature profile_feature() {
  return {
      .name = "profile",
      .level = 0,  // MindSpeed's is 2; runs of every level are to be compared
      .effect = "Records a trace of chosen steps and ranks, for msprof",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ProfilingConfig>("profiling", config.profiling); },
      .is_active = [](const TrainerConfig& c) { return c.profiling.profile; },
      .rules = {needs(
          "--profile-with-memory", [](const TrainerConfig& c) { return c.profiling.profile_with_memory; },
          "--profile-with-cpu", [](const TrainerConfig& c) { return c.profiling.profile_with_cpu; })},
      .check = check_profile,
  };
}

}  // namespace ms::train
