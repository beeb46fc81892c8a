#include "train/memory/activations.h"

#include <algorithm>

namespace ms::train {

RebuiltOutputs rebuilt_outputs(const TrainingConfig& config, int64_t layer) {
  const int64_t behind = layer - (config.recompute_method == "block" ? config.recompute_num_layers : 0);
  const auto is_among = [&](int64_t num_layers) { return behind >= 0 && (num_layers == 0 || behind < num_layers); };
  const auto has_module = [&](const char* name) { return std::ranges::count(config.recompute_modules, name) > 0; };
  return {
      .norms = (config.recompute_norm && is_among(config.recompute_norm_num_layers)) || has_module("layernorm"),
      .activation = config.recompute_activation_function && is_among(config.recompute_activation_function_num_layers),
      .mlp = has_module("mlp")};
}

}  // namespace ms::train
