#include "profile/ingest/detail/event_array.h"

#include <algorithm>
#include <cstring>

namespace ms::profile::detail {
namespace {

constexpr size_t kExampleBytes = 80;
// Looking for the next whole event after damage costs at most this, so that no file makes it quadratic.
constexpr int64_t kMaxResyncBytes = int64_t{1} << 28;

}  // namespace

std::string_view EventArray::example() const {
  return {window_.begin(), std::min<size_t>(kExampleBytes, static_cast<size_t>(window_.end() - window_.begin()))};
}

// After a damaged event: to the next whole one, which must have a phase. False if there is none.
bool EventArray::resync() {
  issues_.add("syntax", window_.offset(), example());
  window_.use_up_to(window_.begin() + 1);
  while (resync_bytes_ < kMaxResyncBytes) {
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
    resync_bytes_ += undecided ? window_.end() - brace : scan == Scan::kWhole ? event_.end - brace : 64;
    if (undecided) {
      if (window_.refill()) continue;
      if (scan == Scan::kWhole) return true;
    }
    window_.use_up_to(window_.begin() + 1);
  }
  return false;
}

// What is no event. False where reading cannot go on.
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

bool EventArray::read_event() {
  Scan scan = Scan::kCut;
  do {
    columns_.begin_event(window_.begin(), window_.offset());
    scan = scanner_.scan(window_.begin(), window_.end(), event_, &columns_);
  } while (scan == Scan::kCut && window_.refill());
  if (scan == Scan::kWhole) {
    columns_.add(event_);
    window_.use_up_to(event_.end);
    return true;
  }
  if (scan == Scan::kCut) {
    // The end of the file lies inside this event; damage may make it look so.
    issues_.add("truncated", window_.offset(), example());
    if (!window_.full()) return false;
  }
  return resync();
}

bool EventArray::read(bool may_end) {
  window_.use_up_to(window_.begin() + 1);
  while (window_.skip_space()) {
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
