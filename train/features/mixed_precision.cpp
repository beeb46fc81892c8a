#include "train/features/mixed_precision.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {

Feature mixed_precision_feature() {
  return {
      .name = "mixed-precision",
      .level = 0,
      .effect =
          "Computes in bf16 or fp16, with gradients and master weights in fp32: half the bytes of activations and "
          "of tensor-parallel messages",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<MixedPrecisionConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.bf16 || c.training.fp16; },
      .rules = {excludes(
                    "--fp16", [](const TrainerConfig& c) { return c.training.fp16; }, "--bf16",
                    [](const TrainerConfig& c) { return c.training.bf16; }),
                needs(
                    "--loss-scale", [](const TrainerConfig& c) { return c.training.loss_scale.has_value(); }, "--fp16",
                    [](const TrainerConfig& c) { return c.training.fp16; })},
      .check =
          [](const TrainerConfig& c, int) {
            const MixedPrecisionConfig& p = c.training;
            require(!p.loss_scale || *p.loss_scale > 0, "--loss-scale ", p.loss_scale.value_or(0),
                    ": give a positive number");
            require(p.min_loss_scale > 0 && p.min_loss_scale <= p.initial_loss_scale, "--min-loss-scale ",
                    p.min_loss_scale, ": expected above 0 and at most --initial-loss-scale ", p.initial_loss_scale);
            require(p.loss_scale_window > 0, "--loss-scale-window ", p.loss_scale_window, ": at least 1");
            require(p.hysteresis > 0, "--hysteresis ", p.hysteresis, ": at least 1");
          },
  };
}

}  // namespace ms::train
