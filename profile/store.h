// The store: one rank's trace as a structure of arrays (traces.md 8). Readers in ingest/ fill it, analysis/ reads it.
//
// Times are int64 nanoseconds of the rank's own clock. Slices (events with a duration) are in `events`, sorted by
// start; memory changes and counters have tables of their own. Arguments are kept as typed rows only for events that
// have them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "profile/import_stats.h"
#include "profile/names.h"

namespace ms::profile {

// Where events of a category belong: device work counts in breakdowns; device annotations lie on a device lane and are
// no work (gpu_user_annotation, cuda_sync).
enum class Side : uint8_t { kHost, kLaunch, kDevice, kDeviceCopy, kDeviceNoWork };

struct Category {
  NameId name = 0;
  Side side = Side::kHost;
};

struct Lane {
  bool device = false;
  int64_t process = 0;  // host: pid; device: device number
  int64_t id = 0;       // host: tid; device: stream
  NameId name = 0;
};

struct CommArgs {
  NameId op = 0, group = 0, ranks = 0, dtype = 0;  // ranks as text: "[0, 1]"
  int64_t sequence = -1, in_elements = 0, out_elements = 0;
  int32_t source = -1, destination = -1;  // world ranks, of point-to-point
  bool async = false;
};

struct Details {
  int64_t flops = -1, bytes = -1;  // -1: unknown
  uint32_t stack = 0;              // index of RankTrace::stacks
  NameId dims = 0, types = 0;      // JSON text
};

struct Events {
  std::vector<int64_t> ts, dur;
  std::vector<NameId> name;
  std::vector<uint8_t> category;      // index of RankTrace::categories
  std::vector<uint16_t> lane;         // index of RankTrace::lanes
  std::vector<uint32_t> correlation;  // 0: none
  std::vector<uint32_t> comm;         // index of RankTrace::comms, 0: none
  std::vector<uint32_t> details;      // index of RankTrace::details, 0: none

  size_t size() const { return ts.size(); }
  int64_t end(size_t i) const { return ts[i] + dur[i]; }
};

struct StackFrame {
  uint32_t parent = 0;  // 0: none
  NameId name = 0;
};

struct MemoryChange {
  int64_t ts = 0, address = 0, bytes = 0, total = 0;
  NameId tag = 0;
  uint16_t lane = 0;
};

struct CounterSample {
  int64_t ts = 0;
  double value = 0;
  NameId name = 0;
  uint16_t lane = 0;
};

// own clock - rank 0's clock, measured at own time `at` (traces.md 7.3).
struct ClockPoint {
  int64_t at = 0, offset = 0, error = 0;
};

struct FileInfo {
  std::string path, format;
  int rank = 0;
  int64_t bytes = 0, events = 0;
  bool truncated = false;
};

struct RankTrace {
  int rank = -1;        // -1: the file does not say
  int world_size = -1;  // -1: unknown
  int64_t pid = 0;
  int64_t base_unix_ns = 0;  // unix time = base + ts
  std::string level;         // of recording; empty: unknown

  NameTable names;
  std::vector<Category> categories;
  std::vector<Lane> lanes;
  Events events;
  std::vector<CommArgs> comms{1};
  std::vector<Details> details{1};
  std::vector<StackFrame> stacks{1};
  std::vector<MemoryChange> memory;
  std::vector<CounterSample> counters;
  std::vector<ClockPoint> clocks;

  int64_t first_ts = 0, last_end = 0;  // of events; set by finish_trace

  Side side(size_t event) const { return categories[events.category[event]].side; }
  // The index of a category, added if it is new. At most 256: further ones share the last.
  uint8_t category(std::string_view name, Side side);
};

// Sorts events by start (stable) and sets first_ts and last_end. Readers call it last.
void finish_trace(RankTrace& trace);

// Everything that was given to msprof, by rank.
struct Store {
  std::vector<std::unique_ptr<RankTrace>> ranks;  // ascending by rank
  std::vector<FileInfo> files;
  ImportStats stats;
  double seconds = 0;
};

}  // namespace ms::profile
