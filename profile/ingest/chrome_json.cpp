#include "profile/ingest/chrome_json.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"
#include "profile/ingest/ascend_lanes.h"
#include "profile/ingest/detail/ahead_parts.h"
#include "profile/ingest/detail/array_parts.h"
#include "profile/ingest/detail/event_array.h"
#include "profile/ingest/detail/event_columns.h"
#include "profile/ingest/detail/event_scan.h"
#include "profile/ingest/detail/file_issues.h"
#include "profile/ingest/detail/json_window.h"
#include "profile/ingest/detail/numbers.h"
#include "profile/ingest/own_meta.h"
#include "profile/ingest/xla_lanes.h"

namespace ms::profile {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::Kind;
using detail::Scan;
using detail::Value;

// Small, so that threads finish at about the same time; not smaller, because the names and flows of each piece must be
// merged.
constexpr int64_t kMinPieceBytes = int64_t{1} << 20;
constexpr int64_t kPiecesPerThread = 4;

// Reads the JSON document around the array of events.
class Reader {
 public:
  Reader(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats,
         const ChromeJsonOptions& options)
      : stream_(stream),
        window_(stream),
        issues_(stats, path),
        columns_(trace, issues_),
        trace_(trace),
        file_(file),
        options_(options) {
    if (options.arguments != nullptr) columns_.visit_arguments(*options.arguments);
  }

  bool read();

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw Error(ErrorCode::kCorruptData, cat(issues_.path(), ": ", why));
  }
  void count(std::string_view kind, std::string_view text = {}) { issues_.add(kind, window_.offset(), text); }

  void read_object();
  bool read_array(bool may_end);
  void read_after();
  bool skip_long_value();
  void read_metadata(std::string_view key, const Value& value);
  void read_own(const Value& value);
  void restore_own_times();

  ByteStream& stream_;
  detail::JsonWindow window_;
  detail::FileIssues issues_;
  detail::EventColumns columns_;
  RankTrace& trace_;
  FileInfo& file_;
  const ChromeJsonOptions& options_;
  OwnTimes own_times_;  // of JSON exported from a native trace
  bool found_array_ = false, ended_early_ = false;
};

bool Reader::read_array(bool may_end) {
  found_array_ = true;
  detail::EventArray array(window_, columns_, issues_);
  bool closed = false;
  const int64_t piece = options_.piece_bytes > 0
                            ? options_.piece_bytes
                            : std::max(kMinPieceBytes, stream_.size() / (kPiecesPerThread * options_.threads));
  if (options_.threads > 1 && stream_.size() - window_.offset() > piece) {
    detail::ArrayParts parts(stream_, issues_.path(), window_.offset(), piece, options_.threads, columns_.own());
    closed = array.read(may_end, parts);
  } else if (options_.threads > 1 && stream_.lends() && options_.arguments == nullptr) {
    detail::AheadParts parts(stream_, issues_.path(), columns_.own());
    closed = array.read(may_end, parts);
  } else {
    closed = array.read(may_end);
  }
  ended_early_ = array.ended_early();
  return closed;
}

// Restores what the native trace held beside its events, if this JSON was exported from one.
void Reader::read_own(const Value& value) {
  try {
    own_times_ = read_own_info(core::parse_json(value.text(), "msuite"), trace_);
    columns_.expect_own();
  } catch (const Error& e) {
    count("syntax", e.what());
  }
}

// Shifts times back to the recorder's clock.
void Reader::restore_own_times() {
  if (!shift_times(trace_, own_times_.origin)) {
    trace_.clocks.clear();
    trace_.meta.clear();
    return count("bad_number", "\"origin_ns\" plus the times of events overflows");
  }
  trace_.base_unix_ns = own_times_.base_unix;
  trace_.has_base = true;
  trace_.backend.clear();  // set from distributedInfo, which native traces do not have
}

void Reader::read_metadata(std::string_view key, const Value& value) {
  if (key == "baseTimeNanoseconds") {
    constexpr int64_t kMaxNs = int64_t{1} << 61;  // sums of times below this cannot overflow
    if (const auto ns = detail::whole_number(value.text()); ns && *ns > -kMaxNs && *ns < kMaxNs) {
      trace_.base_unix_ns = *ns;
      trace_.has_base = true;
    }
  } else if (key == "displayTimeUnit") {
    trace_.display_time_unit = value.text();
  } else if (key == "schemaVersion") {
    trace_.schema_version = static_cast<int>(detail::whole_number(value.text()).value_or(-1));
  } else if (key == "msuite" && value.kind == Kind::kObject) {
    read_own(value);
  } else if (key == "deviceProperties" && value.kind == Kind::kArray) {
    if (options_.device_properties != nullptr && nlohmann::json::accept(value.text())) {
      *options_.device_properties = value.text();
    }
  } else if (key == "distributedInfo" && value.kind == Kind::kObject) {
    try {
      const nlohmann::json info = core::parse_json(value.text(), key);
      const auto whole = [&](const char* member) {
        const auto found = info.find(member);
        constexpr int64_t kMaxRanks = int64_t{1} << 24;
        if (found == info.end() || !found->is_number_integer()) return -1;
        const auto number = found->get<int64_t>();
        return number >= 0 && number < kMaxRanks ? static_cast<int>(number) : -1;
      };
      trace_.rank = whole("rank");
      trace_.world_size = whole("world_size");
      if (const auto found = info.find("backend"); found != info.end() && found->is_string()) {
        trace_.backend = found->get<std::string>();
      }
    } catch (const Error& e) {
      count("syntax", e.what());
    }
  }
}

// Skips a value that may be longer than the window. Returns false at the end of the stream or at damage.
bool Reader::skip_long_value() {
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  while (true) {
    for (const char* p = window_.begin(); p < window_.end(); ++p) {
      const char c = *p;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
          if (depth == 0) {
            window_.use_up_to(p + 1);
            return true;
          }
        }
        continue;
      }
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth <= 0) {
        window_.use_up_to(depth < 0 ? p : p + 1);
        return true;
      }
      if (depth == 0 && c == ',') {
        window_.use_up_to(p);
        return true;
      }
    }
    window_.use_up_to(window_.end());
    if (!window_.refill()) return false;
  }
}

void Reader::read_object() {
  window_.use_up_to(window_.begin() + 1);
  const auto cut = [&] {
    ended_early_ = true;
    if (found_array_) count("truncated", "the object is not closed");
  };
  while (true) {
    if (!window_.skip_space()) return cut();
    if (*window_.begin() == ',') {
      window_.use_up_to(window_.begin() + 1);
      continue;
    }
    if (*window_.begin() == '}') {
      window_.use_up_to(window_.begin() + 1);
      return;
    }
    if (*window_.begin() != '"') {
      if (!found_array_) refuse("is not JSON, or its \"traceEvents\" cannot be found after the damage");
      count("syntax", "after the events");
      ended_early_ = true;
      return;
    }
    const char* next = nullptr;
    Value key;
    while (detail::skip_value(window_.begin(), window_.end(), next, &key) == Scan::kCut) {
      if (!window_.refill()) return cut();
    }
    const std::string name(key.text().substr(0, 64));
    window_.use_up_to(next);
    if (!window_.skip_space()) return cut();
    if (*window_.begin() != ':') {
      if (!found_array_) refuse("is not JSON: a key without a value");
      count("syntax", name);
      ended_early_ = true;
      return;
    }
    window_.use_up_to(window_.begin() + 1);
    if (!window_.skip_space()) return cut();
    if (name == "traceEvents" && !found_array_) {
      if (*window_.begin() != '[') refuse("its \"traceEvents\" is not an array");
      if (!read_array(false)) return;
      continue;
    }
    if (name == "baseTimeNanoseconds" || name == "displayTimeUnit" || name == "schemaVersion" ||
        name == "distributedInfo" || name == "deviceProperties" || (name == "msuite" && !found_array_)) {
      Value value;
      Scan scan = Scan::kCut;
      while ((scan = detail::skip_value(window_.begin(), window_.end(), next, &value)) == Scan::kCut) {
        if (!window_.refill()) return cut();
      }
      if (scan == Scan::kWhole) {
        read_metadata(name, value);
        window_.use_up_to(next);
        continue;
      }
    }
    if (!skip_long_value()) return cut();
  }
}

void Reader::read_after() {
  if (window_.skip_space()) {
    const char c = *window_.begin();
    if (c == '{' || c == '[') {
      count("extra_document");
    } else {
      count("trailing_bytes");
    }
  }
  window_.drain();
}

bool Reader::read() {
  if (!window_.skip_space()) refuse(window_.bytes_read() == 0 ? "is empty" : "contains only white space");
  if (window_.end() - window_.begin() >= 3 && std::string_view(window_.begin(), 3) == "\xef\xbb\xbf") {
    window_.use_up_to(window_.begin() + 3);
    if (!window_.skip_space()) refuse("is empty");
  }
  if (*window_.begin() == '[') {
    read_array(true);
  } else if (*window_.begin() == '{') {
    read_object();
  } else {
    refuse("is not JSON");
  }
  if (!found_array_) {
    if (ended_early_) refuse("ends, or is damaged, before its \"traceEvents\"");
    return false;
  }
  if (!ended_early_) read_after();
  window_.drain();
  file_.json_bytes = trace_.json_bytes = window_.bytes_read();
  file_.events = columns_.events();
  trace_.file_rank = trace_.rank;
  columns_.finish(window_.offset());
  if (columns_.own()) restore_own_times();
  if (!assign_ascend_lanes(trace_)) assign_xla_lanes(trace_);
  finish_trace(trace_);
  return true;
}

}  // namespace

bool read_chrome_json(ByteStream& stream, const std::string& path, RankTrace& trace, FileInfo& file, ImportStats& stats,
                      const ChromeJsonOptions& options) {
  return Reader(stream, path, trace, file, stats, options).read();
}

}  // namespace ms::profile
