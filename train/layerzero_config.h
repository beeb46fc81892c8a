// The YAML file of MindSpeed's --layerzero-config (mindspeed/core/distributed/layerzero/config.py, LayerzeroConfig):
// the flags that say the same here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/io/json.h"
#include "train/flags_of_file.h"

namespace ms::train {

struct TrainerConfig;

// yaml: as core::parse_yaml reads it. fields: those that parse the flags, with the user's given. zero3_size counts
// ranks of a stage, tensor-parallel ones too, as in MindSpeed. where: names the file in errors.
//
// Throws kInvalidArgument for an unknown key, with the nearest known one, for a value of another kind, and where the
// user has given a flag with another value; kUnsupported for a value that would change the run in a way for which there
// is no flag.
FlagsOfFile flags_of_layerzero(const nlohmann::ordered_json& yaml, const core::ConfigFields& fields,
                               int tensor_model_parallel_size, std::string_view where);

// With --layerzero: take_flags_of_file() of its file.
std::vector<std::string> load_layerzero_file(const TrainerConfig& config, core::ConfigFields& fields);

}  // namespace ms::train
