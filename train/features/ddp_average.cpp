#include "train/features/ddp_average.h"

#include "core/layout/process_group_table.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kAverage = "--ddp-average-in-collective";

bool averages(const TrainerConfig& config) { return config.parallel.ddp_average_in_collective; }

void check_ddp_average(const TrainerConfig& config, int world_size) {
  require(!averages(config) || !config.model.has_experts() || !layout::experts_apart(config.grid(world_size)), kAverage,
          ": the gradients of experts are added up over fewer ranks than share the loss: leave it out, or give "
          "--expert-model-parallel-size 1 and no --expert-tensor-parallel-size");
}

}  // namespace

Feature ddp_average_feature() {
  return {
      .name = "ddp-average-in-collective",
      .level = 0,
      .effect = "Averages gradients over the replicas in the collective that adds them up",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<DdpAverageConfig>("parallel", config.parallel); },
      .is_active = averages,
      .rules = {excludes(
                    kAverage, averages, "--calculate-per-token-loss",
                    [](const TrainerConfig& c) { return c.training.calculate_per_token_loss; },
                    ", which divides by tokens, as in Megatron"),
                excludes(
                    kAverage, averages, "--parallel-mode",
                    [](const TrainerConfig& c) { return !c.parallel.parallel_mode.empty(); },
                    ", whose --gradients-mean says whether replicas are averaged")},
      .check = check_ddp_average,
  };
}

}  // namespace ms::train
