// Reads an array of events from a window over JSON text into columns, past whatever damage there is.
#pragma once

#include <cstdint>
#include <string_view>

#include "profile/ingest/detail/event_columns.h"
#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/json_window.h"

namespace ms::profile::detail {

class EventArray {
 public:
  EventArray(JsonWindow& window, EventColumns& columns, FileIssues& issues)
      : window_(window), columns_(columns), issues_(issues) {}

  // The events behind the '[' at which the window stands, to behind its ']'. False if the array was not closed, which
  // is counted unless may_end: the bare array may be cut off between any two events.
  bool read(bool may_end);

  // Whether the text ended, or was damaged beyond help, inside the array.
  bool ended_early() const { return ended_early_; }

 private:
  bool read_event();
  bool skip_other();
  bool resync();
  std::string_view example() const;

  JsonWindow& window_;
  EventColumns& columns_;
  FileIssues& issues_;
  EventScanner scanner_;
  ScannedEvent event_;
  bool ended_early_ = false;
  int64_t resync_bytes_ = 0;
};

}  // namespace ms::profile::detail
