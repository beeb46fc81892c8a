// The YAML file of MindSpeed's --layerzero-config (mindspeed/core/distributed/layerzero/config.py, LayerzeroConfig):
// the flags that say the same here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/io/json.h"

namespace ms::train {

struct TrainerConfig;

struct LayerZeroFlags {
  std::vector<std::string> flags;    // for ConfigFields::parse_flags: of fields that the user has not given
  std::vector<std::string> notices;  // keys that ask for what is always so, or has nothing to act on here; and why
};

// yaml: as core::parse_yaml reads it. fields: those that parse the flags, with the user's given. zero3_size counts
// ranks of a stage, tensor-parallel ones too, as in MindSpeed. where: names the file in errors.
//
// Throws kInvalidArgument for an unknown key, with the nearest known one, for a value of another kind, and where a flag
// of the user says something else than a key; kUnsupported for what would change the run and is not implemented.
LayerZeroFlags flags_of_layerzero(const nlohmann::ordered_json& yaml, const core::ConfigFields& fields,
                                  int tensor_model_parallel_size, std::string_view where);

// With --layerzero reads its file, sets the fields, and returns its notices. Errors begin with --layerzero-config.
std::vector<std::string> load_layerzero_file(const TrainerConfig& config, core::ConfigFields& fields);

}  // namespace ms::train
