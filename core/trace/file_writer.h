// Writes a native trace: events in, chunks out (profile/FORMAT.md). Used by recorder.h, and by tests that need traces
// with given times. Not thread-safe.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "core/trace/event.h"

namespace ms::core::trace {

// The payload of an events chunk, and the offsets at which parts begin that are compressed separately.
struct EncodedEvents {
  std::string payload;
  std::vector<size_t> cuts;  // ascending
};
// Sorts events in place by (lane, start, longer first); uses only the entries of `tables` that they refer to.
EncodedEvents encode_events(std::span<Event> events, const Tables& tables);

// If destroyed before finish(), leaves a file without a footer, which reads like that of a killed run.
class FileWriter {
 public:
  // Creates or truncates path and writes the magic and a meta chunk. Throws kIo.
  FileWriter(std::string path, const nlohmann::json& meta);

  // Writes events as one or more chunks of at most kMaxChunkBytes. Throws kIo. Reorders events.
  void write_events(std::span<Event> events, const Tables& tables);
  // offset_ns: own clock - rank 0's clock, at own time at_ns. Throws kIo.
  void write_clock(int64_t at_ns, int64_t offset_ns, int64_t error_ns);
  // Writes the footer (the meta again, totals, index of chunks, and `extra`) and closes. Throws kIo.
  void finish(const nlohmann::json& extra);

  const std::string& path() const { return path_; }
  int64_t num_events() const { return num_events_; }
  int64_t size_bytes() const { return offset_; }

 private:
  struct IndexEntry {
    int64_t offset, events, first_ns, last_ns;
  };
  void write_chunk(ChunkKind kind, std::string_view payload, std::span<const size_t> cuts, int64_t events);
  void write_all(std::string_view bytes);

  std::string path_, meta_;
  File file_;
  int64_t offset_ = 0, num_events_ = 0;
  uint64_t sequence_ = 0;
  std::vector<IndexEntry> index_;
};

}  // namespace ms::core::trace
