// The store: the trace of one rank as a structure of arrays. Readers in ingest/ fill it, analysis/ reads it.
//
// Times are int64 nanoseconds of the rank's own clock. Slices (events with a duration) are in `events`, sorted by
// start; memory changes and counters have separate tables. Arguments are stored as typed rows, only for events that
// have them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "profile/ascend.h"
#include "profile/column.h"
#include "profile/import_stats.h"
#include "profile/names.h"

namespace ms::profile {

// What the events of a category are. Host: operators, annotations, Python functions, launches (calls that submit device
// work) and the rest. Device work counts in breakdowns; annotations and synchronisation on a device lane
// (gpu_user_annotation, cuda_sync) do not. Pseudo events of the profiler are neither, and do not extend the span.
enum class Side : uint8_t {
  kHost,
  kOperator,
  kAnnotation,
  kPython,
  kLaunch,
  kDevice,
  kDeviceCopy,
  kDeviceNoWork,
  kDeviceSync,
  kPseudo
};
inline bool on_device(Side side) { return side >= Side::kDevice && side <= Side::kDeviceSync; }
inline bool is_device_work(Side side) { return side == Side::kDevice || side == Side::kDeviceCopy; }

struct Category {
  NameId name = 0;
  Side side = Side::kHost;
  int64_t events = 0;          // of every phase, in the file
  int64_t complete_flows = 0;  // flows with both ends
};

// Threads and processes may have texts instead of numbers as ids: their id is this plus the text's NameId.
inline constexpr int64_t kTextLaneId = int64_t{1} << 61;

struct Lane {
  bool device = false;
  int64_t process = 0;  // host: pid; device: device number
  int64_t id = 0;       // host: tid; device: stream
  NameId name = 0;
  NameId process_name = 0;
};

struct CommArgs {
  NameId op = 0, group = 0, ranks = 0, dtype = 0;  // ranks as text: "[0, 1]"
  int64_t sequence = -1, in_elements = 0, out_elements = 0;
  uint64_t comms_id = 0;                  // the same number for one operation on all its ranks; 0: unknown
  int32_t source = -1, destination = -1;  // world ranks, of point-to-point operations
  bool async = false;
};

struct Details {
  int64_t flops = -1, bytes = -1;       // -1: unknown
  int64_t microbatch = -1, chunk = -1;  // of an action of mstrain's pipeline; -1: it is none
  double gb_per_s = 0;                  // of a copy, as in the file, whose duration is more precise; 0: not there
  uint32_t stack = 0;                   // index of RankTrace::stacks
  NameId dims = 0, types = 0;           // JSON text
  int32_t wait_stream = -1;             // of a stream wait event: the waiting stream
  uint32_t wait_correlation = 0;        // of an event synchronisation: the cudaEventRecord it waits for
  uint8_t sync_kind = 0;                // SyncKind
  bool unsigned_stream = false;         // of a synchronisation of all streams: written as 2^32 - 1 instead of -1
  bool names_stream = false;            // of a Triton operator on a host thread whose arguments name a stream
};

enum class SyncKind : uint8_t { kNone, kContext, kStream, kEvent, kStreamWaitEvent };

struct Events {
  Column<int64_t> ts, dur;
  Column<NameId> name;
  Column<uint8_t> category;      // index of RankTrace::categories
  Column<uint16_t> lane;         // index of RankTrace::lanes
  Column<uint32_t> correlation;  // 0: none
  Column<uint32_t> external;     // Kineto's "External id" of device and communication events, 0: none
  Column<uint32_t> comm;         // index of RankTrace::comms, 0: none
  Column<uint32_t> details;      // index of RankTrace::details, 0: none
  Column<uint32_t> file_order;   // position among the events of the file; empty unless RankTrace::keep_file_order

  size_t size() const { return ts.size(); }
  int64_t end(size_t i) const { return ts[i] + dur[i]; }
};

struct StackFrame {
  uint32_t parent = 0;  // 0: none
  NameId name = 0;
};

struct MemoryChange {
  int64_t ts = 0, address = 0, bytes = 0, total = 0, reserved = 0;  // total, reserved: after the change, -1: unknown
  NameId tag = 0;
  uint16_t lane = 0;
  int16_t device_type = 0, device = -1;  // Kineto: type 0 CPU, 1 CUDA
};

// One end of a flow between slices, kept only where flows link host and device (Ascend).
struct FlowPoint {
  int64_t ts = 0;
  uint64_t id = 0;
  uint16_t lane = 0;
  uint8_t category = 0;
  bool start = false;
};

struct CounterSample {
  int64_t ts = 0;
  double value = 0;
  NameId name = 0;
  uint16_t lane = 0;
};

// Own clock minus rank 0's clock, measured at own time `at`.
struct ClockPoint {
  int64_t at = 0, offset = 0, error = 0;
};

struct FileInfo {
  std::string path, format;
  int rank = 0;
  int64_t bytes = 0, json_bytes = -1, events = 0;  // json_bytes: after decompression, -1: not JSON
  bool truncated = false;
};

class ClassRules;

struct RankTrace {
  int rank = -1;        // -1: not known yet
  int file_rank = -1;   // the rank stored in the file, -1: none
  int world_size = -1;  // -1: unknown
  int64_t pid = 0;
  int64_t base_unix_ns = 0;  // unix time = base + ts
  bool has_base = false;     // false: ts is unix time, or its origin is unknown
  std::string level;         // of recording; empty: unknown
  std::string backend, display_time_unit;
  int schema_version = -1;

  NameTable names;
  std::vector<Category> categories;
  std::vector<Lane> lanes;
  Events events;
  std::vector<CommArgs> comms{1};
  std::vector<Details> details{1};
  std::vector<StackFrame> stacks{1};
  std::vector<MemoryChange> memory;
  std::vector<CounterSample> counters;
  std::vector<FlowPoint> flows;
  std::vector<ClockPoint> clocks;
  std::unique_ptr<AscendTables> ascend;  // null: a trace of another kind

  std::array<int64_t, 128> by_phase{};            // events of every phase, by its letter
  int64_t flow_ids = 0, flow_pairs_complete = 0;  // distinct (cat, name, id); those with both ends
  int64_t negative_dur = 0;
  int64_t json_bytes = -1;

  int64_t first_ts = 0, last_end = 0;             // of events; set by find_bounds
  std::string meta;                               // mstrain's metadata (FORMAT.md) as JSON text; empty: other recorder
  std::shared_ptr<const ClassRules> class_rules;  // the user's rules (class_rules.h); null: none
  std::shared_ptr<const std::regex> step_annotation;  // the user's expression for step annotations; null: default
  bool keep_file_order = false;                       // fill Events::file_order
  bool begins_with_slice = false;                     // the first event of its JSON file is in `events`

  Side side(size_t event) const { return categories[events.category[event]].side; }
  // Index of a category, added if it is new. The limit is 256 categories: further ones share the last.
  uint8_t category(std::string_view name, Side side);
};

// The earliest time of an event, memory change or counter of a finished trace, if any: time zero of exports.
std::optional<int64_t> first_time(const RankTrace& trace);

// Sorts events by start, longer first, else stably (sort.h), and sets the bounds. Readers call it last. Memory: 16
// bytes per event during the sort.
void finish_trace(RankTrace& trace);
// Sets first_ts and last_end from the events, which must be sorted by start.
void find_bounds(RankTrace& trace);

// All loaded traces, by rank.
struct Store {
  std::vector<std::unique_ptr<RankTrace>> ranks;  // ascending by rank
  std::vector<FileInfo> files;
  ImportStats stats;
  double seconds = 0;
};

}  // namespace ms::profile
