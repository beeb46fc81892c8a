// Reads native traces (profile/FORMAT.md). What is whole is read, what is not is counted.
#pragma once

#include <string>
#include <string_view>

#include "profile/import_stats.h"
#include "profile/store.h"

namespace ms::profile {

// Decodes the file's bytes into `trace` (empty before; finish_trace is called). path is for messages.
//
// A chunk that is damaged is skipped to the next one whose checksum holds; a file without its end (a killed run) gives
// what came before. Both are counted in stats; file.truncated is set, and file.events. Throws kCorruptData if it does
// not begin with the magic or holds no whole chunk at all, kUnsupported if it is of a newer version.
void read_mstrace(std::string_view bytes, const std::string& path, RankTrace& trace, FileInfo& file,
                  ImportStats& stats);

}  // namespace ms::profile
