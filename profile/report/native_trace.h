// A rank's trace as a native file (FORMAT.md): back from the JSON that was made of one.
#pragma once

#include <string>

#include "profile/store.h"

namespace ms::profile {

// Writes path whole or not at all. Reading it gives the same store; the chunks are cut by time, so the same store gives
// the same bytes. Throws kUnsupported for traces of other profilers, of which the format cannot hold everything; kIo.
void write_native_trace(const RankTrace& trace, const std::string& path);

}  // namespace ms::profile
