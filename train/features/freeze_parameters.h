// Parameters that do not train.
#pragma once

#include <string>
#include <vector>

#include "core/transformer_config.h"
#include "train/features/feature.h"

namespace ms::train {

struct FreezeParametersConfig {
  std::string freeze_parameters;

  template <class Visitor>
  static void fields(Visitor&& field) {
    field("freeze_parameters", &FreezeParametersConfig::freeze_parameters,
          "Regular expression, searched in Megatron's parameter names: those that match keep their values. They have "
          "no gradient, no optimizer state and no share in the norm, which saves their memory and a third of their "
          "products; for fine-tuning, such as of the last layers or all but the embedding. Empty: all train");
  }
};

// Names of the model's parameters that match, sorted. Throws kInvalidArgument, naming the flag, for an invalid
// expression.
std::vector<std::string> frozen_parameters(const FreezeParametersConfig& config, const core::TransformerConfig& model);

// Says "frozen by --freeze-parameters: 9 of 21 tensors, 8224 parameters", unless all train. The vocabulary is padded
// for tensor_model_parallel_size ranks.
void log_frozen(const FreezeParametersConfig& config, const core::TransformerConfig& model,
                int tensor_model_parallel_size);

Feature freeze_parameters_feature();

}  // namespace ms::train
