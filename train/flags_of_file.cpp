#include "train/flags_of_file.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::train {

using core::cat;
using core::Error;
using core::ErrorCode;

nlohmann::json GivenValues::of(const char* field) const {
  if (!fields_.given(field)) return nullptr;
  for (const nlohmann::json& group : values_) {
    if (const auto found = group.find(field); found != group.end()) return *found;
  }
  return nullptr;
}

std::string flag_of_field(std::string_view field) {
  std::string flag = cat("--", field);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::vector<std::string> take_flags_of_file(std::string_view flag, const std::string& path, core::ConfigFields& fields,
                                            core::FunctionRef<FlagsOfFile(const std::string& text)> read) {
  constexpr int64_t kMaxBytes = 1 << 20;
  // A damaged file is a bad argument.
  const auto failed = [&](const Error& e, std::string_view where) {
    return Error(e.code() == ErrorCode::kCorruptData ? ErrorCode::kInvalidArgument : e.code(),
                 cat(flag, " ", where, e.what()));
  };
  FlagsOfFile found;
  try {
    found = read(core::read_text(path, kMaxBytes));
  } catch (const Error& e) {
    throw failed(e, "");
  }
  try {
    fields.parse_flags(found.flags);
  } catch (const Error& e) {
    throw failed(e, cat(path, ": "));
  }
  for (std::string& notice : found.notices) notice = cat(path, ": ", notice);
  return std::move(found.notices);
}

}  // namespace ms::train
