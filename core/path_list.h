// Paths on a command line, where "-" stands for the lines of stdin, so that the tools can be piped together:
//
//   msdata preprocess ... | mstrain --data-path - ... | msckpt verify - | msckpt reshard --load-dir - ...
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace ms::core {

// Returns `paths` with every "-" replaced by the non-empty lines of `in`.
//
// The result is empty only if `paths` is empty, or if `in` had no line: then the upstream command failed and printed
// why. The tool should exit with code 0 and print nothing, so that under `set -o pipefail` the pipeline returns the
// code of the command that failed. Throws kInvalidArgument if "-" appears more than once or a path is empty, kIo if
// reading fails.
std::vector<std::string> expand_path_list(const std::vector<std::string>& paths, std::istream& in);

}  // namespace ms::core
