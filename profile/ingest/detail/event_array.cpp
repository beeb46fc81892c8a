#include "profile/ingest/detail/event_array.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace ms::profile::detail {
namespace {

constexpr size_t kExampleBytes = 80;
// Limit on the bytes searched for the next whole event after damage, so that no file makes the search quadratic.
constexpr int64_t kMaxResyncBytes = int64_t{1} << 28;
// The same limit for the first event of a part; lower, because a failed search only costs time.
constexpr int64_t kMaxSearchBytes = int64_t{1} << 22;

}  // namespace

EventArray::EventArray(JsonWindow& window, EventColumns& columns, FileIssues& issues)
    : window_(window), columns_(columns), issues_(issues), resync_budget_(kMaxResyncBytes) {}

std::string_view EventArray::example() const {
  return {window_.begin(), std::min<size_t>(kExampleBytes, static_cast<size_t>(window_.end() - window_.begin()))};
}

// Advances to the next whole event with a phase. Returns false if there is none, or the search budget is used up.
bool EventArray::find_event(int64_t& budget) {
  while (budget > 0) {
    const auto left = static_cast<size_t>(window_.end() - window_.begin());
    const char* brace = static_cast<const char*>(std::memchr(window_.begin(), '{', left));
    window_.use_up_to(brace == nullptr ? window_.end() : brace);
    if (brace == nullptr) {
      if (!window_.refill()) return false;
      continue;
    }
    const Scan scan = scanner_.scan(brace, window_.end(), event_);
    bool undecided = scan == Scan::kCut;
    if (scan == Scan::kWhole && event_.ph && event_.ph.size == 1) {
      const char* next = skip_space(event_.end, window_.end());
      if (next < window_.end() && (*next == ',' || *next == ']')) return true;
      undecided = next >= window_.end();
    }
    budget -= undecided ? window_.end() - brace : scan == Scan::kWhole ? event_.end - brace : 64;
    if (undecided) {
      if (window_.refill()) continue;
      if (scan == Scan::kWhole) return true;
    }
    window_.use_up_to(window_.begin() + 1);
  }
  return false;
}

// Searches for the next event after a damaged one.
bool EventArray::resync() {
  issues_.add("syntax", window_.offset(), example());
  window_.use_up_to(window_.begin() + 1);
  return find_event(resync_budget_);
}

// Skips an array element that is not an event. Returns false if reading cannot continue.
bool EventArray::skip_other() {
  const char* next = nullptr;
  Scan scan = skip_value(window_.begin(), window_.end(), next);
  while (scan == Scan::kCut && window_.refill()) scan = skip_value(window_.begin(), window_.end(), next);
  if (scan == Scan::kWhole) {
    issues_.add("not_an_object", window_.offset(), {window_.begin(), static_cast<size_t>(next - window_.begin())});
    window_.use_up_to(next);
    return true;
  }
  if (scan == Scan::kWrong) return resync();
  issues_.add("truncated", window_.offset(), example());
  return false;
}

// Scans the event at the window's start; a whole one is added and consumed.
Scan EventArray::scan_event() {
  Scan scan = Scan::kCut;
  do {
    columns_.begin_event(window_.begin(), window_.offset());
    scan = scanner_.scan(window_.begin(), window_.end(), event_, &columns_);
  } while (scan == Scan::kCut && window_.refill());
  if (scan == Scan::kWhole) {
    columns_.add(event_);
    window_.use_up_to(event_.end);
  }
  return scan;
}

// The end of the first whole event with a phase after the window's first byte; null if there is none.
const char* EventArray::event_inside() {
  int64_t budget = 2 * static_cast<int64_t>(JsonWindow::kMaxBytes);
  for (const char* at = window_.begin() + 1; budget > 0; ++at) {
    at = static_cast<const char*>(std::memchr(at, '{', static_cast<size_t>(window_.end() - at)));
    if (at == nullptr) break;
    const Scan scan = scanner_.scan(at, window_.end(), event_);
    if (scan == Scan::kWhole && event_.ph && event_.ph.size == 1) {
      const char* next = skip_space(event_.end, window_.end());
      if (next < window_.end() && (*next == ',' || *next == ']')) return at;
    }
    budget -= scan == Scan::kCut ? window_.end() - at : scan == Scan::kWhole ? event_.end - at : 64;
  }
  return nullptr;
}

// Handles an event that does not fit into the window. An unclosed string looks like one: then more events follow inside
// it.
bool EventArray::skip_oversized() {
  if (const char* next = event_inside(); next != nullptr) {
    issues_.add("syntax", window_.offset(), example());
    window_.use_up_to(next);
    return true;
  }
  issues_.add("oversized_event", window_.offset(), example());
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  do {
    for (const char* p = window_.begin(); p < window_.end(); ++p) {
      const char c = *p;
      if (in_string) {
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if ((c == '}' || c == ']') && --depth == 0) {
        window_.use_up_to(p + 1);
        return true;
      }
    }
    window_.use_up_to(window_.end());
  } while (window_.refill());
  issues_.add("truncated", window_.offset(), "inside an event");
  return false;
}

bool EventArray::read_event() {
  const Scan scan = scan_event();
  if (scan == Scan::kWhole) return true;
  if (scan == Scan::kWrong) return resync();
  if (window_.full()) return skip_oversized();
  issues_.add("truncated", window_.offset(), example());
  return false;
}

// Takes over the part that begins at the window's position, if there is one.
bool EventArray::take_part() {
  if (!window_.can_go()) return false;
  const std::unique_ptr<ArrayPart> part = parts_->take(window_.offset());
  if (part == nullptr || !columns_.absorb(part->columns)) return false;
  issues_.stats().merge(part->stats);
  window_.go_to(part->end);
  return true;
}

bool EventArray::read_part(int64_t end, const std::atomic<bool>& stop, int64_t& begun, int64_t& ended) {
  int64_t budget = kMaxSearchBytes;
  if (!window_.refill() || !find_event(budget)) return false;
  begun = window_.offset();
  while (window_.skip_space()) {
    const char c = *window_.begin();
    if (c == ',') {
      window_.use_up_to(window_.begin() + 1);
    } else if (stop) {
      return false;
    } else if (c != '{' || window_.offset() >= end || scan_event() != Scan::kWhole) {
      break;
    }
  }
  ended = window_.offset();
  return window_.exact() && ended > begun;
}

bool EventArray::read(bool may_end) {
  window_.use_up_to(window_.begin() + 1);
  while (window_.skip_space()) {
    if (parts_ != nullptr && window_.offset() >= parts_->next() && take_part()) continue;
    const char c = *window_.begin();
    if (c == ',' || c == ']') {
      window_.use_up_to(window_.begin() + 1);
      if (c == ']') return true;
    } else if (!(c == '{' ? read_event() : skip_other())) {
      ended_early_ = true;
      return false;
    }
  }
  if (!may_end) issues_.add("truncated", window_.offset(), "the array of events is not closed");
  return false;
}

}  // namespace ms::profile::detail
