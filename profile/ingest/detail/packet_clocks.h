// Converts the timestamps of Perfetto packets from their clocks to trace time.
//
// A snapshot holds several clocks, read at one instant. A time on another clock is shifted by the offset from the last
// snapshot before it; a time on the trace's own clock (BOOTTIME unless a snapshot names another) is unchanged. Some
// clocks belong to one sequence of packets, and for some each timestamp is relative to the previous one.
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
  // snapshot: the message. Returns false, with nothing changed, if it violates the format.
  bool read_snapshot(uint32_t sequence, std::string_view snapshot);

  struct Time {
    int64_t ns = 0;
    bool known = true;  // false: the clock is unknown and its time is taken as trace time
  };
  // id: 0 for the trace's own clock. Nullopt for a time of 2^62 ns or more.
  std::optional<Time> to_trace(uint32_t sequence, uint32_t id, uint64_t timestamp);

  // Unix time of trace time 0, from the first snapshot that has it.
  std::optional<int64_t> unix_base() const { return unix_base_; }

 private:
  struct Clock {
    uint64_t multiplier = 1, last = 0;  // last: in ns, for incremental clocks
    int64_t offset = 0;                 // trace time minus time of this clock
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
