// Flags and output shared by query and events: rows of an SQL query as CSV, table, or JSON.
#pragma once

#include <string>
#include <vector>

#include "tools/msprof/input_flags.h"
#include "tools/msprof/output_flags.h"

namespace ms::tools::msprof {

struct RowFlags {
  InputFlags input;
  OutputFlags output;
  bool table = false;

  void add(CLI::App& verb);
  // Throws kInvalidArgument if `paths` is empty.
  int answer(const char* verb, const std::vector<std::string>& paths, const std::string& sql,
             const std::vector<std::string>& arguments) const;
};

}  // namespace ms::tools::msprof
