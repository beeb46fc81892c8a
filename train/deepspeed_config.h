// A DeepSpeed configuration, the JSON of --deepspeed_config (deepspeed/runtime/config.py, zero/config.py): the flags
// that say the same here. Translated into flags, so that what a flag does or refuses is the same in both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/io/json.h"

namespace ms::train {

struct DeepspeedFlags {
  std::vector<std::string> flags;    // for ConfigFields::parse_flags: of fields that the user has not given
  std::vector<std::string> notices;  // keys that ask for what is always so, or has nothing to act on here; and why
};

// fields: those that parse the flags, with the user's given. A key that is "auto" leaves its flag to the command line,
// as in the integrations of transformers and Accelerate. where: names the file in errors.
//
// Throws kInvalidArgument for an unknown key, with the nearest known one, for a value of another kind, and where a flag
// of the user says something else than a key, with both values; kUnsupported for what would change the run and is not
// implemented.
DeepspeedFlags flags_of_deepspeed(const nlohmann::json& config, const core::ConfigFields& fields,
                                  std::string_view where);

// Reads the file, sets the fields, and returns its notices. Errors begin with --deepspeed_config.
std::vector<std::string> load_deepspeed_file(const std::string& path, core::ConfigFields& fields);

}  // namespace ms::train
