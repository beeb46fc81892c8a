// Reads Perfetto traces: the track events of any program, and what report/perfetto_trace.h writes (traces.md 6).
//
// A track event's first category that is a word of Kineto's says what it is; arguments of Kineto's names become
// columns. Packets of other sources (system calls, memory, ..) are counted and skipped.
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/store.h"

namespace ms::profile {

// Reads the whole stream into `trace` (empty before; finish_trace is called). What is damaged or cut is left out and
// counted in stats. Memory follows the events, and the largest packet. Throws kCorruptData for a stream without a whole
// packet. path is for messages.
void read_perfetto(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats);

}  // namespace ms::profile
