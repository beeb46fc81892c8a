#include "train/features/recompute_norm.h"

#include "train/config.h"
#include "train/features/check.h"
#include "train/features/recompute.h"

namespace ms::train {
namespace {

constexpr const char* kNormLayers = "--recompute-norm-num-layers";

}  // namespace

// A number above that of all layers is an assertion of MindSpeed's (mindspeed/core/transformer/transformer.py).
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
                    kNormLayers, [](const TrainerConfig& c) { return c.training.recompute_norm_num_layers != 0; },
                    "--recompute-norm", [](const TrainerConfig& c) { return c.training.recompute_norm; })},
      .check =
          [](const TrainerConfig& c, int) {
            const int64_t layers = c.training.recompute_norm_num_layers;
            require(layers >= 0, kNormLayers, " ", layers, ": at least 0");
            require(layers <= c.model.num_layers, kNormLayers, " ", layers, ": --num-layers is ", c.model.num_layers);
          },
      .notices =
          [](const TrainerConfig& c) { return notice_of_layers(c, kNormLayers, c.training.recompute_norm_num_layers); },
  };
}

}  // namespace ms::train
