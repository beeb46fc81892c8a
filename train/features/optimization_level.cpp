#include "train/features/optimization_level.h"

#include "train/config.h"
#include "train/features/check.h"
#include "train/features/registry.h"

namespace ms::train {
namespace {

void resolve_level(TrainerConfig& config) {
  if (config.training.optimization_level != 0) return;
  FusedOperatorsConfig& fused = config.training;
  for (std::optional<bool>* use :
       {&fused.use_fused_rmsnorm, &fused.use_fused_swiglu, &fused.use_fused_rotary_pos_emb, &fused.use_flash_attn}) {
    if (!use->has_value()) *use = false;
  }
}

void check_level(const TrainerConfig& config, int) {
  const int64_t level = config.training.optimization_level;
  require(level >= 0 && level <= 2, "--optimization-level ", level, ": expected 0, 1 or 2");
  for (const Feature& feature : features()) {
    if (feature.level <= level || !feature.is_active(config)) continue;
    std::vector<std::string> given = given_flags(feature, config);
    std::erase_if(given, [](const std::string& flag) { return flag.starts_with("--no-"); });
    if (given.empty()) continue;
    require(false, given.front(), " (", feature.name, ") needs --optimization-level ", feature.level, ", but it is ",
            level);
  }
}

}  // namespace

Feature optimization_level_feature() {
  return {
      .name = "optimization-level",
      .level = 0,
      .effect = "Turns off what a higher level adds, for comparisons",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<OptimizationLevelConfig>("training", config.training); },
      .is_active = [](const TrainerConfig& c) { return c.training.optimization_level != 2; },
      .resolve = resolve_level,
      .check = check_level,
  };
}

}  // namespace ms::train
