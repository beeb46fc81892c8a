// msckpt diff --tensors: where two runs of mstrain --save-tensors begin to compute something else.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convert/detect.h"

namespace ms::tools::msckpt {

struct DiffTensorsFlags {
  bool tensors = false;
  std::string noise;
  std::optional<double> tolerance;
  std::optional<int64_t> iteration;
  std::vector<std::string> renames;
};

// --tensors and what needs it.
void add_diff_tensors_flags(CLI::App& verb, DiffTensorsFlags& flags);

// Prints the result, and returns the exit code. paths: two. threads: of this process.
int diff_tensors(const DiffTensorsFlags& flags, const std::vector<std::string>& paths,
                 const convert::OpenOptions& source, int threads, bool json);

}  // namespace ms::tools::msckpt
