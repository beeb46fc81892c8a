#include "train/features/recompute_activation_function.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature recompute_activation_function_feature() {
  return {
      .name = "recompute-activation-function",
      .level = 2,
      .effect =
          "Drops the output of the MLP's activation function after linear_fc2 has read it, and computes it "
          "again in backward: less activation memory for under 1 % of a step",
      .add_flags =
          [](core::ConfigFields& fields, TrainerConfig& config) {
            fields.add<RecomputeActivationFunctionConfig>("training", config.training);
          },
      .is_active = [](const TrainerConfig& c) { return c.training.recompute_activation_function; },
      .rules = {excludes(
                    "--recompute-activation-function",
                    [](const TrainerConfig& c) { return c.training.recompute_activation_function; },
                    "--recompute-method uniform",
                    [](const TrainerConfig& c) { return c.training.recompute_method == "uniform"; },
                    ", which drops all; use block"),
                needs(
                    "--recompute-activation-function-num-layers",
                    [](const TrainerConfig& c) { return c.training.recompute_activation_function_num_layers != 0; },
                    "--recompute-activation-function",
                    [](const TrainerConfig& c) { return c.training.recompute_activation_function; })},
      .check =
          [](const TrainerConfig& c, int) {
            require(c.training.recompute_activation_function_num_layers >= 0,
                    "--recompute-activation-function-num-layers ", c.training.recompute_activation_function_num_layers,
                    ": at least 0");
          },
  };
}

}  // namespace ms::train
