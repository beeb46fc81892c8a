// Megatron's --yaml-cfg: a YAML file with the arguments of a run, under the names that they have in Megatron's args, at
// its top level or in its sections language_model and model_parallel (megatron/training/yaml_arguments.py). Translated
// into flags, so that what a flag does, refuses or leaves without effect is the same in both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/io/json.h"

namespace ms::train {

// Returns the flags that the file stands for, for ConfigFields::parse_flags.
//
// yaml: as core::parse_yaml reads it. fields: those that parse the flags. null means that an argument is not given,
// false that a switch is not; an argument that Megatron has and mstrain has not must have the value that changes
// nothing. Throws kInvalidArgument for an unknown key, with the nearest known one, or section, and for a value of
// another kind; kUnsupported for an argument that would change the run.
std::vector<std::string> flags_of_megatron_yaml(const nlohmann::ordered_json& yaml, const core::ConfigFields& fields,
                                                std::string_view where);

}  // namespace ms::train
