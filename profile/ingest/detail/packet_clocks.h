// Which clock the times of packets are on, and what time of the trace that is (traces.md 6).
//
// A snapshot is several clocks read at once. Times of a clock are moved by what the last snapshot before them says, the
// trace's own clock (BOOTTIME unless a snapshot names another) by nothing. Some clocks are of one sequence of packets,
// and of some each time is added to the one before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "profile/perfetto.h"

namespace ms::profile::detail {

class PacketClocks {
 public:
  // snapshot: the message. False if it contradicts the format; then nothing has changed.
  bool read_snapshot(uint32_t sequence, std::string_view snapshot);

  struct Time {
    int64_t ns = 0;
    bool known = true;  // the clock; otherwise its time is taken as the trace's
  };
  // id: 0 for the trace's own. Nothing for a time from 2^62 ns on.
  std::optional<Time> to_trace(uint32_t sequence, uint32_t id, uint64_t timestamp);

  // Unix time of trace time 0, if a snapshot says it; of the first.
  std::optional<int64_t> unix_base() const { return unix_base_; }

 private:
  struct Clock {
    uint64_t multiplier = 1, last = 0;  // last: in ns, of clocks that count on
    int64_t offset = 0;                 // trace time - this
    bool incremental = false, related = false;
  };
  using Key = std::pair<uint32_t, uint32_t>;  // sequence (0: all), id

  static Key key(uint32_t sequence, uint32_t id) {
    const bool own = id >= perfetto::kFirstSequenceClock && id <= perfetto::kLastSequenceClock;
    return {own ? sequence : 0, id};
  }

  uint32_t trace_clock_ = perfetto::kBoottimeClock;
  std::map<Key, Clock> clocks_;
  std::optional<int64_t> unix_base_;
};

}  // namespace ms::profile::detail
