// Reads an array of events from a window over JSON text into columns, past whatever damage there is.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "profile/ingest/detail/array_parts.h"
#include "profile/ingest/detail/event_columns.h"
#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/json_window.h"

namespace ms::profile::detail {

class EventArray {
 public:
  EventArray(JsonWindow& window, EventColumns& columns, FileIssues& issues);

  // The events behind the '[' at which the window stands, to behind its ']'. False if the array was not closed, which
  // is counted unless may_end: the bare array may be cut off between any two events.
  bool read(bool may_end);

  // The same, with parts of the array that other threads read meanwhile taken over where they begin.
  bool read(bool may_end, ArrayParts& parts) {
    parts_ = &parts;
    return read(may_end);
  }

  // A part: whole events from the first on that seems to begin in the window, to the first that begins at byte `end` or
  // behind, or to whatever is no whole event. Sets begun and ended to the bytes of the first event and of what comes
  // behind the last. False if there is none, or `stop` is set.
  bool read_part(int64_t end, const std::atomic<bool>& stop, int64_t& begun, int64_t& ended);

  // Whether the text ended, or was damaged beyond help, inside the array.
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
  ArrayParts* parts_ = nullptr;
  bool ended_early_ = false;
  int64_t resync_budget_;
};

}  // namespace ms::profile::detail
