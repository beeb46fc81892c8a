#include "train/features/swap_optimizer.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kSwapOptimizer = "--swap-optimizer";
constexpr int64_t kMaxSwapOptimizerTimes = 1 << 20;

bool swaps_optimizer_state(const TrainerConfig& config) { return config.optimizer.swap_optimizer; }

}  // namespace

// MindSpeed excludes --reuse-fp32-param, too, and needs --use-distributed-optimizer, which nothing here does.
Feature swap_optimizer_feature() {
  return {
      .name = "swap-optimizer",
      .level = 2,
      .effect =
          "Keeps master weights and moments on a disk during forward and backward, and updates them in chunks, of "
          "which three are in memory: no bit changes",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<SwapOptimizerConfig>("optimizer", config.optimizer); },
      .is_active = swaps_optimizer_state,
      .rules = {needs(
                    "--swap-optimizer-times",
                    [](const TrainerConfig& c) {
                      return c.optimizer.swap_optimizer_times != SwapOptimizerConfig().swap_optimizer_times;
                    },
                    kSwapOptimizer, swaps_optimizer_state),
                excludes(
                    kSwapOptimizer, swaps_optimizer_state, "--reuse-fp32-param",
                    [](const TrainerConfig& c) { return c.optimizer.reuse_fp32_param; },
                    ", whose master weights are in part the weights"),
                excludes(
                    kSwapOptimizer, swaps_optimizer_state, "--optimizer sgd",
                    [](const TrainerConfig& c) { return c.optimizer.optimizer == "sgd"; },
                    ", as in MindSpeed: it keeps one moment, or none"),
                excludes(
                    kSwapOptimizer, swaps_optimizer_state, "--overlap-param-gather-with-optimizer-step",
                    [](const TrainerConfig& c) { return c.parallel.overlap_param_gather_with_optimizer_step; },
                    ": chunks of the state are no buckets of weights"),
                excludes(
                    kSwapOptimizer, swaps_optimizer_state, "--log-params-norm",
                    [](const TrainerConfig& c) { return c.logger.log_params_norm; },
                    ", which reads the master weights between updates"),
                excludes(
                    kSwapOptimizer, swaps_optimizer_state, "--ckpt-lazy-snapshot",
                    [](const TrainerConfig& c) { return c.checkpoint.ckpt_lazy_snapshot; },
                    ": the state is in memory only until a snapshot is taken")},
      .check =
          [](const TrainerConfig& c, int) {
            const int64_t times = c.optimizer.swap_optimizer_times;
            require(times >= 1 && times <= kMaxSwapOptimizerTimes, "--swap-optimizer-times ", times, ": expected 1 to ",
                    kMaxSwapOptimizerTimes);
          },
  };
}

}  // namespace ms::train
