#include "profile/report/perfetto_trace.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "core/error.h"
#include "profile/ingest/kineto_words.h"
#include "profile/perfetto.h"
#include "profile/report/export_clock.h"
#include "profile/report/json_writer.h"
#include "profile/report/own_info.h"
#include "profile/report/perfetto_sequence.h"
#include "profile/report/perfetto_tracks.h"
#include "profile/report/protobuf_writer.h"

namespace ms::profile {
namespace {

using namespace protobuf;
using perfetto::Key;
namespace fields = perfetto::track_event;

class RankWriter {
 public:
  // clock, origin: convert to exported times. correlation_base: added to ids, so that flows of ranks differ.
  RankWriter(const RankTrace& trace, bool merged, PerfettoSequence& out, uint64_t& last_uuid, const CommonClock& clock,
             int64_t origin, uint32_t correlation_base)
      : trace_(trace),
        out_(out),
        tracks_(trace, merged, out, last_uuid),
        clock_(clock),
        origin_(origin),
        base_(correlation_base) {
    for (const Category& category : trace.categories) {
      says_side_.push_back(side_of_category(trace.names[category.name]).value_or(Side::kHost) == category.side);
    }
  }

  void write_own(const RankTrace& trace);
  void write();

 private:
  // A pending end of a slice. Of slices that end together the innermost ends first.
  struct End {
    uint64_t time, begun, track;
    bool operator>(const End& other) const { return time != other.time ? time > other.time : begun < other.begun; }
  };

  // The format's times are unsigned; times before the origin, in damaged traces, wrap around.
  uint64_t time(int64_t ts) const { return static_cast<uint64_t>(clock_(ts)) - static_cast<uint64_t>(origin_); }

  void begin_event(uint64_t type, uint64_t track) {
    event_.clear();
    put_integer(event_, fields::kType, type);
    put_integer(event_, fields::kTrack, track);
  }
  void annotate(Key key, uint32_t type, uint64_t value);
  void annotate(Key key, int64_t value) { annotate(key, perfetto::annotation::kInteger, static_cast<uint64_t>(value)); }
  void annotate_name(Key key, NameId value) { annotate(key, perfetto::annotation::kStringIid, out_.string(value)); }
  void annotate_text(Key key, std::string_view text);
  void annotate_place(Key key, int64_t id);

  void write_ends_until(uint64_t time);
  void write_slices_at(size_t first, size_t end);
  void write_slice(size_t i);
  void annotate_comm(const CommArgs& comm);
  void annotate_details(const Details& details, Side side);
  void annotate_stack(uint32_t frame);
  void write_memory(const MemoryChange& change);
  void write_counter(const CounterSample& sample);

  const RankTrace& trace_;
  PerfettoSequence& out_;
  PerfettoTracks tracks_;
  const CommonClock& clock_;
  int64_t origin_;
  uint32_t base_;
  std::vector<bool> says_side_;  // by category: whether its name implies its side
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  uint64_t begun_ = 0;
  std::vector<size_t> together_;  // slices that start at the same time
  std::string event_, argument_;
};

void RankWriter::annotate(Key key, uint32_t type, uint64_t value) {
  argument_.clear();
  put_integer(argument_, perfetto::annotation::kNameIid, out_.key(key));
  put_integer(argument_, type, value);
  put_bytes(event_, fields::kAnnotations, argument_);
}

void RankWriter::annotate_text(Key key, std::string_view text) {
  argument_.clear();
  put_integer(argument_, perfetto::annotation::kNameIid, out_.key(key));
  put_bytes(argument_, perfetto::annotation::kString, valid_utf8(text));
  put_bytes(event_, fields::kAnnotations, argument_);
}

// The id of a device or stream, which may be a text.
void RankWriter::annotate_place(Key key, int64_t id) {
  const bool text = id >= kTextLaneId && id < kTextLaneId + static_cast<int64_t>(trace_.names.size());
  text ? annotate_name(key, static_cast<NameId>(id - kTextLaneId)) : annotate(key, id);
}

void RankWriter::annotate_comm(const CommArgs& comm) {
  annotate_name(Key::kCollectiveName, comm.op);
  annotate(Key::kInElements, comm.in_elements);
  annotate(Key::kOutElements, comm.out_elements);
  annotate_name(Key::kDtype, comm.dtype);
  annotate_name(Key::kGroupName, comm.group);
  annotate_name(Key::kGroupRanks, comm.ranks);
  if (comm.sequence >= 0) annotate(Key::kSeq, comm.sequence);
  if (comm.comms_id != 0) annotate(Key::kCommsId, perfetto::annotation::kUnsigned, comm.comms_id);
  if (comm.source >= 0) annotate(Key::kSourceRank, comm.source);
  if (comm.destination >= 0) annotate(Key::kDestinationRank, comm.destination);
  if (comm.async) annotate(Key::kAsync, perfetto::annotation::kBool, 1);
}

// The frames as an array of texts, outermost first.
void RankWriter::annotate_stack(uint32_t frame) {
  std::vector<NameId> frames;
  for (; frame != 0; frame = trace_.stacks[frame].parent) frames.push_back(trace_.stacks[frame].name);
  std::string array, element;
  put_integer(array, perfetto::annotation::kNameIid, out_.key(Key::kCallStack));
  for (auto name = frames.rbegin(); name != frames.rend(); ++name) {
    element.clear();
    put_integer(element, perfetto::annotation::kStringIid, out_.string(*name));
    put_bytes(array, perfetto::annotation::kArray, element);
  }
  put_bytes(event_, fields::kAnnotations, array);
}

void RankWriter::annotate_details(const Details& details, Side side) {
  if (details.flops >= 0) annotate(Key::kFlops, details.flops);
  if (details.bytes >= 0) annotate(Key::kBytes, details.bytes);
  if (details.microbatch >= 0) annotate(Key::kMicrobatch, details.microbatch);
  if (details.chunk >= 0) annotate(Key::kChunk, details.chunk);
  if (details.dims != 0) annotate_name(Key::kInputDims, details.dims);
  if (details.types != 0) annotate_name(Key::kInputTypes, details.types);
  if (side == Side::kDeviceSync) {
    if (const std::string_view kind = sync_kind_name(static_cast<SyncKind>(details.sync_kind)); !kind.empty()) {
      annotate_text(Key::kSyncKind, kind);
    }
    annotate(Key::kWaitOnStream, details.wait_stream);
    if (details.wait_correlation != 0) annotate(Key::kWaitOnCorrelation, int64_t{details.wait_correlation} + base_);
  }
  if (details.stack != 0) annotate_stack(details.stack);
}

void RankWriter::write_slice(size_t i) {
  const Events& events = trace_.events;
  const Side side = trace_.side(i);
  const Lane& lane = trace_.lanes[events.lane[i]];
  const Details& details = trace_.details[events.details[i]];
  const uint64_t start = time(events.ts[i]), end = std::max(start, time(events.end(i)));
  const uint64_t track = tracks_.of_slice(events.lane[i], start, end);
  begin_event(fields::kSliceBegin, track);
  const NameId category = trace_.categories[events.category[i]].name;
  if (category != 0) put_integer(event_, fields::kCategoryIids, out_.category(category));
  put_integer(event_, fields::kNameIid, out_.event_name(events.name[i]));
  if (!says_side_[events.category[i]]) annotate_text(Key::kSide, side_name(side));
  if (on_device(side)) {
    annotate_place(Key::kDevice, lane.process);
    details.unsigned_stream ? annotate(Key::kStream, int64_t{UINT32_MAX}) : annotate_place(Key::kStream, lane.id);
  }
  if (events.external[i] != 0) annotate(Key::kExternalId, events.external[i]);
  const uint64_t correlation = events.correlation[i] == 0 ? 0 : uint64_t{events.correlation[i]} + base_;
  if (correlation != 0) annotate(Key::kCorrelation, static_cast<int64_t>(correlation));
  if (events.comm[i] != 0) annotate_comm(trace_.comms[events.comm[i]]);
  if (events.details[i] != 0) annotate_details(details, side);
  if (correlation != 0) put_fixed64(event_, fields::kFlows, correlation);
  out_.write_event(start, event_);
  ends_.push({end, begun_++, track});
}

void RankWriter::write_ends_until(uint64_t until) {
  for (; !ends_.empty() && ends_.top().time <= until; ends_.pop()) {
    begin_event(fields::kSliceEnd, ends_.top().track);
    out_.write_event(ends_.top().time, event_);
  }
}

void RankWriter::write_memory(const MemoryChange& change) {
  begin_event(fields::kInstant, tracks_.of_lane(change.lane));
  put_bytes(event_, fields::kCategories, "cpu_instant_event");
  put_bytes(event_, fields::kName, "[memory]");
  annotate(Key::kAddress, change.address);
  annotate(Key::kMemoryBytes, change.bytes);
  annotate(Key::kDeviceType, change.device_type);
  annotate(Key::kDeviceId, change.device);
  annotate(Key::kTotalAllocated, change.total);
  annotate(Key::kTotalReserved, change.reserved < 0 ? change.total : change.reserved);
  annotate_name(Key::kTag, change.tag);
  out_.write_event(time(change.ts), event_);
}

void RankWriter::write_counter(const CounterSample& sample) {
  begin_event(fields::kCounter, tracks_.of_counter(sample.lane, sample.name));
  put_double(event_, fields::kDoubleCounterValue, sample.value);
  out_.write_event(time(sample.ts), event_);
}

void RankWriter::write_slices_at(size_t first, size_t end) {
  const Column<int64_t>& dur = trace_.events.dur;
  together_.resize(end - first);
  std::iota(together_.begin(), together_.end(), first);
  std::stable_sort(together_.begin(), together_.end(), [&](size_t a, size_t b) { return dur[a] > dur[b]; });
  for (const size_t i : together_) write_slice(i);
}

void RankWriter::write() {
  const Events& events = trace_.events;
  size_t slice = 0, memory = 0, counter = 0;
  const auto next = [](const auto& rows, size_t i) { return i < rows.size() ? rows[i].ts : INT64_MAX; };
  while (true) {
    const int64_t slice_ts = slice < events.size() ? events.ts[slice] : INT64_MAX;
    const int64_t memory_ts = next(trace_.memory, memory), counter_ts = next(trace_.counters, counter);
    const int64_t ts = std::min({slice_ts, memory_ts, counter_ts});
    if (ts == INT64_MAX) break;
    write_ends_until(time(ts));
    if (slice_ts == ts) {
      size_t end = slice + 1;
      while (end < events.size() && events.ts[end] == ts) ++end;
      write_slices_at(slice, end);
      slice = end;
    } else if (memory_ts == ts) {
      write_memory(trace_.memory[memory++]);
    } else {
      write_counter(trace_.counters[counter++]);
    }
  }
  write_ends_until(UINT64_MAX);
}

void RankWriter::write_own(const RankTrace& trace) {
  begin_event(fields::kInstant, tracks_.of_rank());
  put_bytes(event_, fields::kCategories, perfetto::kTraceInstant);
  put_bytes(event_, fields::kName, perfetto::kTraceInstant);
  if (trace.rank >= 0) annotate(Key::kRank, trace.rank);
  if (trace.world_size >= 0) annotate(Key::kWorldSize, trace.world_size);
  if (!trace.backend.empty()) annotate_text(Key::kBackend, trace.backend);
  if (trace.has_base) annotate(Key::kBaseUnixNs, trace.base_unix_ns);
  annotate(Key::kOriginNs, origin_);
  if (!trace.meta.empty()) annotate_text(Key::kOwn, own_info(trace, origin_));
  out_.write_event(0, event_);
}

// Relates exported time 0 to the clock of the packets and to unix time. unix_origin < 0: unknown.
std::string clock_snapshot(int64_t unix_origin) {
  namespace words = perfetto::clock_snapshot;
  std::string snapshot;
  const auto add = [&snapshot](uint32_t id, int64_t timestamp) {
    std::string clock;
    put_integer(clock, words::kClockId, id);
    put_signed(clock, words::kTimestamp, timestamp);
    put_bytes(snapshot, words::kClocks, clock);
  };
  add(perfetto::kBoottimeClock, 0);
  if (unix_origin >= 0) add(perfetto::kRealtimeClock, unix_origin);
  put_integer(snapshot, words::kPrimaryClock, perfetto::kBoottimeClock);
  return snapshot;
}

}  // namespace

void write_perfetto_trace(const std::vector<const RankTrace*>& ranks, OutputFile& out) {
  MS_CHECK(!ranks.empty(), "no rank to write");
  const bool merged = ranks.size() > 1;
  const ExportClock clock = export_clock(ranks);
  uint64_t last_uuid = 0;
  uint32_t correlation_base = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const RankTrace& trace = *ranks[r];
    PerfettoSequence sequence(out, static_cast<uint32_t>(r + 1), trace);
    if (r == 0) sequence.write_clocks(clock_snapshot(clock.unix_origin));
    RankWriter writer(trace, merged, sequence, last_uuid, clock.ranks[r], clock.origin, correlation_base);
    if (!merged) writer.write_own(trace);
    writer.write();
    uint32_t largest = 0;
    for (const uint32_t id : trace.events.correlation) largest = std::max(largest, id);
    correlation_base += largest;
  }
}

}  // namespace ms::profile
