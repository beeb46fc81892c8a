// Reads Perfetto traces: the track events of any program, and the files that report/perfetto_trace.h writes.
//
// The first category of a track event that is one of Kineto's says what the event is (Side in store.h: operator,
// launch, device work, ..); arguments with Kineto's names become columns. Packets of other sources (system calls,
// memory, ..) are counted and skipped.
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/store.h"

namespace ms::profile {

// Reads the whole stream into `trace`, which must be empty, and calls finish_trace. Damaged or truncated packets are
// skipped and counted in stats. Memory is proportional to the events, plus the largest packet. Throws kCorruptData for
// a stream without a whole packet. path appears in messages.
void read_perfetto(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats);

}  // namespace ms::profile
