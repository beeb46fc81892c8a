// Reads an array of events from a window over JSON text into columns, and resynchronises after damage.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "profile/ingest/detail/event_columns.h"
#include "profile/ingest/detail/event_parts.h"
#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/json_window.h"

namespace ms::profile::detail {

class EventArray {
 public:
  EventArray(JsonWindow& window, EventColumns& columns, FileIssues& issues);

  // Reads the events after the '[' at the window's start, up to and including its ']'. Returns false if the array is
  // not closed, which is counted unless may_end: a bare array may be cut off between any two events.
  bool read(bool may_end);

  // The same, but takes over parts that other threads have read.
  bool read(bool may_end, EventParts& parts) {
    parts_ = &parts;
    return read(may_end);
  }

  // Reads one part: whole events from the first one that seems to begin in the window, up to the first that begins at
  // byte `end` or later, or to the first text that is not a whole event. Sets begun to the offset of the first event
  // and ended to the offset after the last. Returns false if there is no event, or `stop` is set.
  bool read_part(int64_t end, const std::atomic<bool>& stop, int64_t& begun, int64_t& ended);

  // True if the text ended, or was damaged beyond recovery, inside the array.
  bool ended_early() const { return ended_early_; }

 private:
  Scan scan_event();
  bool read_event();
  const char* event_inside();
  bool skip_oversized();
  bool take_part();
  bool skip_other();
  bool find_event(int64_t& budget);
  bool resync();
  std::string_view example() const;

  JsonWindow& window_;
  EventColumns& columns_;
  FileIssues& issues_;
  EventScanner scanner_;
  ScannedEvent event_;
  EventParts* parts_ = nullptr;
  bool ended_early_ = false;
  int64_t resync_budget_;
};

}  // namespace ms::profile::detail
