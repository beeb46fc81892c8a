#include "train/features/parallel_optimizer.h"

#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kEnable = "--enable-parallel-optimizer";
constexpr const char* kLevel = "--optimizer-level";
constexpr const char* kThreshold = "--parallel-optimizer-threshold";
constexpr int64_t kDefaultThreshold = 64;
constexpr int64_t kMaxThreshold = int64_t{1} << 40;

bool is_enabled(const TrainerConfig& config) { return config.parallel.enable_parallel_optimizer; }
bool has_threshold(const TrainerConfig& config) {
  return config.parallel.parallel_optimizer_threshold.value_or(0) != 0;
}

// What --data-parallel-sharding-strategy calls a level; empty: there is no such level.
std::string strategy_of(const std::string& level) {
  if (level == "level1") return "optim";
  if (level == "level2") return "optim_grads";
  return level == "level3" ? "optim_grads_params" : "";
}

void resolve_parallel_optimizer(TrainerConfig& config) {
  if (!is_enabled(config)) return;
  if (config.parallel.optimizer_level.empty()) config.parallel.optimizer_level = "level1";
  if (!config.parallel.parallel_optimizer_threshold) config.parallel.parallel_optimizer_threshold = kDefaultThreshold;
  config.parallel.use_distributed_optimizer = true;
  if (config.parallel.optimizer_level == "level1") return;
  config.parallel.use_megatron_fsdp = true;
  if (config.parallel.data_parallel_sharding_strategy.empty())
    config.parallel.data_parallel_sharding_strategy = strategy_of(config.parallel.optimizer_level);
}

void check_parallel_optimizer(const TrainerConfig& config, int /*world_size*/) {
  const int64_t threshold = config.parallel.parallel_optimizer_threshold.value_or(0);
  require(threshold >= 0 && threshold <= kMaxThreshold, kThreshold, " ", threshold, ": expected 0 to ", kMaxThreshold,
          " KiB");
  const std::string& level = config.parallel.optimizer_level;
  require_one_of(kLevel, level, {"", "level1", "level2", "level3"});
  const std::string& strategy = config.parallel.data_parallel_sharding_strategy;
  require(level.empty() || !config.parallel.use_megatron_fsdp || strategy == strategy_of(level), kLevel, " ", level,
          " is --data-parallel-sharding-strategy ", strategy_of(level), ", not ", strategy, ": give one of both");
}

}  // namespace

int64_t least_divided_elems(const ModelParallelConfig& config, core::DType dtype) {
  return config.parallel_optimizer_threshold.value_or(0) * 1024 / core::size_of(dtype);
}

Feature parallel_optimizer_feature() {
  return {
      .name = "parallel-optimizer",
      .level = 0,
      .effect =
          "MindSpore's names for the stages of ZeRO over a part of the DP ranks: small parameters stay whole, and "
          "their gradients are summed in one message",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<ParallelOptimizerConfig>("parallel", config.parallel); },
      .is_active = [](const TrainerConfig& c) { return is_enabled(c) || has_threshold(c); },
      .rules = {needs(
                    kLevel, [](const TrainerConfig& c) { return !c.parallel.optimizer_level.empty(); }, kEnable,
                    is_enabled),
                needs(
                    kThreshold, has_threshold, "--use-distributed-optimizer",
                    [](const TrainerConfig& c) { return c.parallel.use_distributed_optimizer; },
                    ": without it nothing is divided")},
      .resolve = resolve_parallel_optimizer,
      .check = check_parallel_optimizer,
  };
}

}  // namespace ms::train
