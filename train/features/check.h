// Checks of values that flags have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace ms::train {

// Samples of a run: exact as a double, which Megatron computes with and JSON stores.
inline constexpr int64_t kMaxSamples = int64_t{1} << 53;

// Throws kInvalidArgument with these parts as text unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw core::Error(core::ErrorCode::kInvalidArgument, core::cat(parts...));
}

// Throws unless value is one of values; the error lists them.
inline void require_one_of(const char* flag, const std::string& value, std::initializer_list<const char*> values) {
  if (std::find(values.begin(), values.end(), value) != values.end()) return;
  std::string list;
  for (const char* one : values) {
    if (*one == '\0') continue;
    list += core::cat(list.empty() ? "" : one == *(values.end() - 1) ? " or " : ", ", one);
  }
  const bool is_seen = !value.empty() && value.find_first_of(" \t\n") == std::string::npos;
  require(false, flag, " ", is_seen ? value : core::cat('"', value, '"'), ": expected ", list);
}

// Runs a parser of the flag's value; its error then begins with the flag.
template <class Parse>
void within_flag(const char* flag, const Parse& parse) {
  try {
    parse();
  } catch (const core::Error& e) {
    throw e.within(flag);
  }
}

}  // namespace ms::train
