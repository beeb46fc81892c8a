// A DeepSpeed configuration, the JSON of --deepspeed_config (deepspeed/runtime/config.py, zero/config.py): the flags
// that say the same here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/io/json.h"
#include "train/flags_of_file.h"

namespace ms::train {

// fields: those that parse the flags, with the user's given. A key that is "auto" leaves its flag to the command line,
// as in the integrations of transformers and Accelerate. where: names the file in errors.
//
// Throws kInvalidArgument for an unknown key, with the nearest known one, for a value of another kind, and where the
// user has given a flag with another value, with both; kUnsupported for a value that would change the run in a way for
// which there is no flag.
FlagsOfFile flags_of_deepspeed(const nlohmann::json& config, const core::ConfigFields& fields, std::string_view where);

// take_flags_of_file() of the file; a key that it gives twice is an error, as in DeepSpeed.
std::vector<std::string> load_deepspeed_file(const std::string& path, core::ConfigFields& fields);

}  // namespace ms::train
