#include "train/features/recompute_activation_function.h"

#include "train/config.h"
#include "train/features/check.h"
#include "train/features/recompute.h"

namespace ms::train {
namespace {

constexpr const char* kNumLayers = "--recompute-activation-function-num-layers";

}  // namespace

// A number above that of all layers is an assertion of MindSpeed's (mindspeed/core/transformer/transformer.py).
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
                    kNumLayers,
                    [](const TrainerConfig& c) { return c.training.recompute_activation_function_num_layers != 0; },
                    "--recompute-activation-function",
                    [](const TrainerConfig& c) { return c.training.recompute_activation_function; })},
      .check =
          [](const TrainerConfig& c, int) {
            const int64_t layers = c.training.recompute_activation_function_num_layers;
            require(layers >= 0, kNumLayers, " ", layers, ": at least 0");
            require(layers <= c.model.num_layers, kNumLayers, " ", layers, ": --num-layers is ", c.model.num_layers);
          },
      .notices =
          [](const TrainerConfig& c) {
            return notice_of_layers(c, kNumLayers, c.training.recompute_activation_function_num_layers);
          },
  };
}

}  // namespace ms::train
