#include "train/features/parallel_mode.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

void check_mode(const TrainerConfig& config, int world_size) {
  const std::string& mode = config.parallel.parallel_mode;
  if (mode == "semi_auto_parallel" || mode == "auto_parallel" || mode == "hybrid_parallel") {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat("--parallel-mode ", mode,
                                " is not supported yet; say --tensor-model-parallel-size and "
                                "--pipeline-model-parallel-size, or data_parallel"));
  }
  if (!mode.empty()) require_one_of("--parallel-mode", mode, {"stand_alone", "data_parallel"});
  require(mode != "stand_alone" || world_size == 1, "--parallel-mode stand_alone is for one rank, but there are ",
          world_size);
}

}  // namespace

Feature parallel_mode_feature() {
  return {
      .name = "parallel-mode",
      .level = 0,
      .effect = "MindSpore's data parallelism: adds the replicas' gradients, or averages them with --gradients-mean",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ParallelModeConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.parallel_mode == "data_parallel"; },
      .rules = {needs(
                    "--gradients-mean", [](const TrainerConfig& c) { return c.parallel.gradients_mean; },
                    "--parallel-mode data_parallel",
                    [](const TrainerConfig& c) { return c.parallel.parallel_mode == "data_parallel"; },
                    "; without it gradients are always averaged"),
                excludes(
                    "--parallel-mode", [](const TrainerConfig& c) { return !c.parallel.parallel_mode.empty(); },
                    "--tensor-model-parallel-size above 1",
                    [](const TrainerConfig& c) { return c.parallel.tensor_model_parallel_size > 1; }),
                excludes(
                    "--parallel-mode", [](const TrainerConfig& c) { return !c.parallel.parallel_mode.empty(); },
                    "--pipeline-model-parallel-size above 1",
                    [](const TrainerConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; })},
      .check = check_mode,
  };
}

}  // namespace ms::train
