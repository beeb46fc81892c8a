// Reads Chrome trace events: PyTorch's Kineto, Ascend's trace_view, and any other trace in this format.
#pragma once

#include <string>

#include "profile/import_stats.h"
#include "profile/ingest/byte_stream.h"
#include "profile/ingest/source_arguments.h"
#include "profile/store.h"

namespace ms::profile {

struct ChromeJsonOptions {
  int threads = 1;          // that read one file, if it can be read from any offset (ByteStream::from)
  int64_t piece_bytes = 0;  // bytes of text per piece that a thread reads; 0: chosen from the file's size
  const ArgumentVisitor* arguments = nullptr;  // called for each slice; threads must be 1
  std::string* device_properties = nullptr;    // receives Kineto's deviceProperties array as JSON text
};

// Reads the whole stream into `trace`, which must be empty, and calls finish_trace.
//
// Malformed events are skipped and counted in stats with file, byte and text; a stream that ends early gives the events
// before its end. Memory is proportional to the events, not to the bytes. The result does not depend on the options.
// Returns false, with nothing read, for a JSON document without "traceEvents". Throws kCorruptData if the stream is not
// JSON, is damaged before its events, or "traceEvents" is not an array. path appears in messages.
bool read_chrome_json(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats,
                      const ChromeJsonOptions& options = {});

}  // namespace ms::profile
