#include "train/features/freeze_parameters.h"

#include <algorithm>
#include <regex>

#include "core/expression.h"
#include "core/layout/parameter_specs.h"
#include "core/log.h"
#include "train/config.h"
#include "train/features/check.h"

namespace ms::train {
namespace {

constexpr const char* kFreezeParameters = "--freeze-parameters";

}  // namespace

std::vector<std::string> frozen_parameters(const FreezeParametersConfig& config, const core::TransformerConfig& model) {
  std::vector<std::string> frozen;
  if (config.freeze_parameters.empty()) return frozen;
  const std::regex expression = core::user_expression(config.freeze_parameters, /*ignore_case=*/false,
                                                      core::ErrorCode::kInvalidArgument, kFreezeParameters);
  for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) {
    if (std::regex_search(spec.key, expression)) frozen.push_back(spec.key);
  }
  std::ranges::sort(frozen);
  return frozen;
}

void log_frozen(const FreezeParametersConfig& config, const core::TransformerConfig& model,
                int tensor_model_parallel_size) {
  const std::vector<std::string> frozen = frozen_parameters(config, model);
  if (frozen.empty()) return;
  int64_t parameters = 0, tensors = 0;
  for (const layout::ParameterSpec& spec : layout::parameter_specs(model)) {
    ++tensors;
    if (!std::ranges::binary_search(frozen, spec.key)) continue;
    const int64_t rows = spec.global_shape[0];
    const bool is_padded = spec.rule == layout::TpRule::kVocabRows;
    parameters += core::num_elements(spec.global_shape) / rows *
                  (is_padded ? model.padded_vocab_size(tensor_model_parallel_size) : rows);
  }
  core::log_info("train.model", core::cat("frozen by ", kFreezeParameters, ": ", frozen.size(), " of ", tensors,
                                          " tensors, ", parameters, " parameters"));
}

Feature freeze_parameters_feature() {
  return {
      .name = "freeze-parameters",
      .level = 0,
      .effect = "Keeps some parameters as they are, without their gradients and optimizer state",
      .add_flags = [](core::ConfigFields& fields,
                      TrainerConfig& config) { fields.add<FreezeParametersConfig>("optimizer", config.optimizer); },
      .is_active = [](const TrainerConfig& c) { return !c.optimizer.freeze_parameters.empty(); },
      .check =
          [](const TrainerConfig& c, int) {
            if (c.optimizer.freeze_parameters.empty()) return;
            const std::vector<layout::ParameterSpec> all = layout::parameter_specs(c.model);
            const size_t frozen = frozen_parameters(c.optimizer, c.model).size();
            require(frozen > 0, kFreezeParameters, " ", c.optimizer.freeze_parameters,
                    ": no parameter has such a name; the first ones are ", all[0].key, ", ", all[1].key, ", ",
                    all[2].key);
            require(frozen < all.size(), kFreezeParameters, " ", c.optimizer.freeze_parameters,
                    ": it matches every parameter, so that nothing would train");
          },
  };
}

}  // namespace ms::train
