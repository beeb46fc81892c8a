// Reads Chrome trace events: PyTorch's Kineto, Ascend's trace_view, and anything else of that form (traces.md 3, 4).
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/source_arguments.h"
#include "profile/store.h"

namespace ms::profile {

struct ChromeJsonOptions {
  int threads = 1;          // that read one file at once, if its bytes can be had from anywhere (ByteStream::from)
  int64_t piece_bytes = 0;  // of the text, that one of them reads at a time; 0: what suits the file
  const ArgumentVisitor* arguments = nullptr;  // called for each slice; threads is 1 then
  std::string* device_properties = nullptr;    // set to Kineto's array of that name, JSON text
};

// Reads the whole stream into `trace` (empty before; finish_trace is called).
//
// Bad events are left out and counted in stats with file, byte and text; a stream that ends early gives what came
// before. Memory follows the events, not the bytes. The same comes out whatever the options. False, and nothing read,
// for a JSON document without "traceEvents". Throws kCorruptData if it is not JSON, or damaged before its events, or
// "traceEvents" is no array. path is for messages.
bool read_chrome_json(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats,
                      const ChromeJsonOptions& options = {});

}  // namespace ms::profile
