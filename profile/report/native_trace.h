// Writes a rank's trace as a native file (FORMAT.md), for example from the JSON that was exported from one.
#pragma once

#include <string>

#include "profile/store.h"

namespace ms::profile {

// Writes `path` completely or not at all. Reading the file gives the same store, and the same store gives the same
// bytes, because chunks are cut by time. Throws kUnsupported for traces of other profilers, which the format cannot
// hold completely; kIo.
void write_native_trace(const RankTrace& trace, const std::string& path);

}  // namespace ms::profile
