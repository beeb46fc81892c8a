#include "train/features/grad_reduce_in_bf16.h"

#include "train/config.h"

namespace ms::train {

Feature grad_reduce_in_bf16_feature() {
  return {
      .name = "grad-reduce-in-bf16",
      .level = 0,
      .effect = "Rounds gradients to bf16 for their way between replicas: half the bytes of the reduction",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<GradReduceInBf16Config>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return c.parallel.grad_reduce_in_bf16; },
      .rules = {needs(
          "--grad-reduce-in-bf16", [](const TrainerConfig& c) { return c.parallel.grad_reduce_in_bf16; }, "--bf16",
          [](const TrainerConfig& c) { return c.training.bf16; })},
  };
}

}  // namespace ms::train
