// Flags and writing of traces, shared by slice and convert.
#pragma once

#include <string>
#include <vector>

#include "tools/msprof/input_flags.h"

namespace ms::tools::msprof {

struct ExportFlags {
  InputFlags input;
  std::string step, output, format = "json.gz";
  bool merge = false;

  void add(CLI::App& verb);
  int run() const;
};

}  // namespace ms::tools::msprof
