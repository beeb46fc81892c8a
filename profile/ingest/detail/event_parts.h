// Parts of an array of events that other threads have read, each into its own columns, for the thread that reads the
// array from its beginning.
//
// The reader of a part looks for the first event that seems to begin in its piece of the text. This can be wrong: a cut
// can lie inside a string that looks like events. A part is therefore used only when the sequential reader, which knows
// where events begin because it has read everything before, arrives at exactly the byte where the part began; from the
// same byte both read the same events. A part that began anywhere else is discarded and read again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "profile/ingest/byte_stream.h"
#include "profile/ingest/detail/event_columns.h"

namespace ms::profile::detail {

// Events of one piece of a text. Issues that do not belong to an event are left to the caller who takes the part.
struct ArrayPart {
  ArrayPart(const std::string& path, bool own) : issues(stats, path), columns(trace, issues) {
    if (own) columns.expect_own();
  }

  int64_t begin = -1, end = -1;  // offsets of the first event and of the text after the last one
  RankTrace trace;
  ImportStats stats;
  FileIssues issues;
  EventColumns columns;
};

// Reads the events that begin in the next `size` bytes of `stream`, whose first byte has offset `begin`. Returns null
// if there is none, the text cannot be read, or `stop` is set: the sequential reader meets the same error and reports
// it. own: see EventColumns::expect_own.
std::unique_ptr<ArrayPart> read_part(ByteStream& stream, const std::string& path, int64_t begin, int64_t size, bool own,
                                     const std::atomic<bool>& stop);

class EventParts {
 public:
  virtual ~EventParts() = default;
  // take() returns null for every offset below this one.
  int64_t next() const { return next_.load(std::memory_order_relaxed); }
  // The part that begins at byte `offset`, the caller's position; null if there is none. Waits for a part that is being
  // read; parts that begin before `offset` are discarded. Offsets must not decrease.
  virtual std::unique_ptr<ArrayPart> take(int64_t offset) = 0;

 protected:
  std::atomic<int64_t> next_{INT64_MAX};
};

}  // namespace ms::profile::detail
