// Reads native traces (profile/FORMAT.md). Whole chunks are read, damaged ones are counted.
#pragma once

#include <string>
#include <string_view>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile {

// Decodes the file's bytes into `trace`, which must be empty, and calls finish_trace. path appears in messages.
//
// After a damaged chunk, reading continues at the next chunk with a valid checksum; a file without a footer (a killed
// run) gives the events before its end. Both are counted in stats; sets file.truncated and file.events. Throws
// kCorruptData if the magic is missing or no chunk is whole, kUnsupported if the format version is newer.
void read_mstrace(std::string_view bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                  ImportStats& stats);

}  // namespace ms::profile
