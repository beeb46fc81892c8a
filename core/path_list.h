// Paths on a command line, where "-" stands for the lines of stdin: what makes the tools chain.
//
//   msdata preprocess ... | mstrain --data-path - ... | msckpt verify - | msckpt reshard --load-dir - ...
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace ms::core {

// `paths` with every "-" replaced by the lines of in that are not empty.
//
// Empty only if `paths` is, or if in gave no line: the link before has failed and said why. There is nothing to do
// then: a tool ends with exit code 0 and prints nothing, so that under `set -o pipefail` the code of the link that
// failed is the one of the chain. Throws kInvalidArgument if "-" comes more than once, kIo if reading fails.
std::vector<std::string> expand_path_list(const std::vector<std::string>& paths, std::istream& in);

}  // namespace ms::core
