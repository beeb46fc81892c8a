#include "train/features/reuse_fp32_param.h"

#include "train/config.h"

namespace ms::train {

Feature reuse_fp32_param_feature() {
  return {
      .name = "reuse-fp32-param",
      .level = 2,
      .effect =
          "Stores only the low 16 bits of the master weights beside the bf16 weights: 2 bytes a parameter less, "
          "bitwise the same results",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ReuseFp32ParamConfig>("optimizer", config.optimizer); },
      .is_active = [](const TrainerConfig& c) { return c.optimizer.reuse_fp32_param; },
      .rules = {needs(
                    "--reuse-fp32-param", [](const TrainerConfig& c) { return c.optimizer.reuse_fp32_param; }, "--bf16",
                    [](const TrainerConfig& c) { return c.training.bf16; }),
                excludes(
                    "--reuse-fp32-param", [](const TrainerConfig& c) { return c.optimizer.reuse_fp32_param; },
                    "--ckpt-lazy-snapshot", [](const TrainerConfig& c) { return c.checkpoint.ckpt_lazy_snapshot; },
                    ": the master weights are put together for a snapshot in the memory of the gradients"),
                excludes(
                    "--reuse-fp32-param", [](const TrainerConfig& c) { return c.optimizer.reuse_fp32_param; },
                    "--optimizer sgd", [](const TrainerConfig& c) { return c.optimizer.optimizer == "sgd"; },
                    ", whose moment has no bit to spare (AdamW's second one has a sign)")},
  };
}

}  // namespace ms::train
