#include "train/empty_flags.h"

#include <utility>

#include "train/features/check.h"

namespace ms::train {

void refuse_empty_flags(const core::ConfigFields& fields, TrainerConfig& config) {
  const auto is_empty = [&](const char* field, const std::string& value) {
    return fields.given(field) && value.empty();
  };
  const char* expression = "give a regular expression, or leave the flag out";
  require(!is_empty("generate", config.generate.generate), "--generate is empty: give the text to continue");
  require(!is_empty("freeze_parameters", config.optimizer.freeze_parameters),
          "--freeze-parameters is empty: ", expression);
  require(!is_empty("save_tensors_filter", config.logger.save_tensors_filter),
          "--save-tensors-filter is empty: ", expression);
  require(!is_empty("attention_mask_grid", config.training.attention_mask_grid),
          "--attention-mask-grid is empty: give a file, or leave the flag out");
  ModelParallelConfig& parallel = config.parallel;
  const std::pair<const char*, std::string*> choices[] = {
      {"context_parallel_algo", &parallel.context_parallel_algo},
      {"context_parallel_kv_cache_policy", &parallel.context_parallel_kv_cache_policy},
      {"schedules_method", &parallel.schedules_method},
      {"optimizer_level", &parallel.optimizer_level},
      {"data_parallel_sharding_strategy", &parallel.data_parallel_sharding_strategy},
      {"outer_dp_sharding_strategy", &parallel.outer_dp_sharding_strategy},
      {"parallel_mode", &parallel.parallel_mode},
      {"recompute_granularity", &config.training.recompute_granularity},
      {"recompute_method", &config.training.recompute_method},
      {"non_persistent_ckpt_type", &config.checkpoint.non_persistent_ckpt_type}};
  for (const auto& [field, value] : choices) {
    if (is_empty(field, *value)) *value = "\"\"";
  }
}

}  // namespace ms::train
