// Configuration files of other programs, read as the flags that say the same here, so that what a flag does or refuses
// is the same in both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/function_ref.h"
#include "core/io/json.h"

namespace ms::train {

struct FlagsOfFile {
  std::vector<std::string> flags;    // for ConfigFields::parse_flags: of fields that the user has not given
  std::vector<std::string> notices;  // keys that ask for what is always so, or have nothing to act on here; and why
};

// What the user has said of fields.
class GivenValues {
 public:
  // fields: must outlive it; values as they are now.
  explicit GivenValues(const core::ConfigFields& fields) : fields_(fields), values_(fields.dump()) {}
  nlohmann::json of(const char* field) const;  // null: nothing

 private:
  const core::ConfigFields& fields_;
  nlohmann::json values_;
};

std::string flag_of_field(std::string_view field);  // "lr_warmup_iters" -> "--lr-warmup-iters"

// Sets the fields as the file says. flag: names the file on the command line; errors begin with it. read: of the file's
// text. Returns the notices, each behind the file's path.
std::vector<std::string> take_flags_of_file(std::string_view flag, const std::string& path, core::ConfigFields& fields,
                                            core::FunctionRef<FlagsOfFile(const std::string& text)> read);

}  // namespace ms::train
