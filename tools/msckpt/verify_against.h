// msckpt verify --against: compares two checkpoints of any formats, or proves that one is a conversion of the other.
#pragma once

#include <string>

#include "convert/detect.h"

namespace ms::tools::msckpt {

struct AgainstFlags {
  std::string against;
  bool prove = false, by_recorded_hashes = false, drop_optimizer = false;
  convert::OpenOptions source;
};

// Prints the result for one path and returns the exit code: 0 if both hold the same, 10 if not, 3 if with --prove the
// format's reader refuses the path. Throws kCorruptData for data that fail their checksums.
int verify_against(const AgainstFlags& flags, const std::string& path, int threads, bool as_json);

}  // namespace ms::tools::msckpt
