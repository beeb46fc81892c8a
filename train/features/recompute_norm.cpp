#include "train/features/recompute_norm.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature recompute_norm_feature() {
  return {
      .name = "recompute-norm",
      .level = 2,
      .effect =
          "Drops the outputs of the norms before attention and MLP, and computes them again in backward: "
          "less activation memory for under 1 % of a step",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<RecomputeNormConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.recompute_norm; },
      .rules = {excludes(
                    "--recompute-norm", [](const TrainerConfig& c) { return c.training.recompute_norm; },
                    "--recompute-method uniform",
                    [](const TrainerConfig& c) { return c.training.recompute_method == "uniform"; },
                    ", which drops all; use block"),
                needs(
                    "--recompute-norm-num-layers",
                    [](const TrainerConfig& c) { return c.training.recompute_norm_num_layers != 0; },
                    "--recompute-norm", [](const TrainerConfig& c) { return c.training.recompute_norm; })},
      .check =
          [](const TrainerConfig& c, int) {
            require(c.training.recompute_norm_num_layers >= 0, "--recompute-norm-num-layers ",
                    c.training.recompute_norm_num_layers, ": at least 0");
          },
  };
}

}  // namespace ms::train
