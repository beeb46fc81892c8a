#include "train/features/overlap_param_gather.h"

#include "train/config.h"

namespace ms::train {
namespace {

constexpr const char* kOverlapParamGather = "--overlap-param-gather";

constexpr const char* kWithStep = "--overlap-param-gather-with-optimizer-step";

bool overlaps_gather(const TrainerConfig& config) { return config.parallel.overlap_param_gather; }
bool overlaps_step(const TrainerConfig& config) { return config.parallel.overlap_param_gather_with_optimizer_step; }

}  // namespace

// Both needs are assertions of Megatron's (megatron/training/arguments.py).
Feature overlap_param_gather_feature() {
  return {
      .name = "overlap-param-gather",
      .level = 2,
      .effect = "Gathers new weights in buckets while the next forward is computed: the same bytes, hidden",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<OverlapParamGatherConfig>("parallel", config.parallel); },
      .is_active = overlaps_gather,
      .rules = {needs(
                    kOverlapParamGather, overlaps_gather, "--use-distributed-optimizer",
                    [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
                    ": without it every rank updates all weights, and none are gathered"),
                needs(
                    kOverlapParamGather, overlaps_gather, "--overlap-grad-reduce",
                    [](const TrainerConfig& c) { return c.parallel.overlap_grad_reduce; }, ", whose buckets it uses"),
                needs(kWithStep, overlaps_step, kOverlapParamGather, overlaps_gather, ", as in Megatron"),
                excludes(
                    kWithStep, overlaps_step, "--data-parallel-sharding-strategy optim_grads_params",
                    [](const TrainerConfig& c) { return zero_stage(c.parallel) >= 3; },
                    ", which gathers weights when they are read")},
  };
}

}  // namespace ms::train
