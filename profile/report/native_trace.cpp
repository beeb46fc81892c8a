#include "profile/report/native_trace.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <numeric>
#include <system_error>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/trace/file_writer.h"

namespace ms::profile {
namespace {

namespace format = core::trace;
using format::EventKind;

class Writer {
 public:
  explicit Writer(const RankTrace& trace) : trace_(trace) {
    add_lanes();
    // A parent has a lower index than its frames.
    for (const StackFrame& frame : trace.stacks) {
      stacks_.push_back(stacks_.empty() ? 0 : tables_.intern_stack(stacks_[frame.parent], text(frame.name)));
    }
    for (size_t i = 0; i < trace.events.size(); ++i) add_slice(i);
    for (const MemoryChange& change : trace.memory) {
      add(EventKind::kMemory, change.ts, change.tag, change.lane).values = {change.address, change.bytes, change.total,
                                                                            0};
    }
    for (const CounterSample& sample : trace.counters) {
      add(EventKind::kCounter, sample.ts, sample.name, sample.lane).values[0] = std::bit_cast<int64_t>(sample.value);
    }
    std::stable_sort(events_.begin(), events_.end(),
                     [](const format::Event& a, const format::Event& b) { return a.start_ns < b.start_ns; });
  }

  void write(const std::string& path) {
    const nlohmann::json meta = core::parse_json(trace_.meta, "meta");
    format::FileWriter file(path, meta);
    for (const ClockPoint& point : trace_.clocks) file.write_clock(point.at, point.offset, point.error);
    file.write_events(events_, tables_);
    file.finish(meta.contains("dropped") ? nlohmann::json::object() : nlohmann::json{{"dropped", 0}});
  }

 private:
  uint32_t text(NameId name) { return tables_.intern(trace_.names[name]); }

  uint32_t intern_comm(const format::CommDescriptor& comm) {
    const auto [entry, added] = comms_.try_emplace(std::tuple(comm.op, comm.group, comm.ranks, comm.dtype),
                                                   static_cast<uint32_t>(tables_.comms.size()));
    if (added) tables_.comms.push_back(comm);
    return entry->second;
  }

  // Sorted, so that their order does not depend on which event comes first.
  void add_lanes() {
    std::vector<uint16_t> order(trace_.lanes.size());
    std::iota(order.begin(), order.end(), uint16_t{0});
    const auto key = [&](uint16_t i) {
      const Lane& lane = trace_.lanes[i];
      return std::tuple(lane.device, lane.id, std::string_view(trace_.names[lane.name]));
    };
    std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) { return key(a) < key(b); });
    lanes_.resize(order.size());
    for (const uint16_t i : order) {
      const Lane& lane = trace_.lanes[i];
      lanes_[i] = static_cast<uint16_t>(tables_.lanes.size());
      tables_.lanes.push_back(
          {lane.device ? format::LaneKind::kStream : format::LaneKind::kThread, lane.id, text(lane.name)});
    }
  }

  format::Event& add(EventKind kind, int64_t start, NameId name, uint16_t lane) {
    format::Event& event = events_.emplace_back();
    event.kind = kind;
    event.start_ns = start;
    event.name = text(name);
    event.lane = lanes_[lane];
    return event;
  }

  EventKind kind_of(size_t i) const {
    switch (trace_.side(i)) {
      case Side::kAnnotation:
        return EventKind::kUserAnnotation;
      case Side::kLaunch:
        return EventKind::kRuntime;
      case Side::kDevice:
        return trace_.events.comm[i] != 0 ? EventKind::kComm : EventKind::kKernel;
      case Side::kDeviceCopy:
        return EventKind::kMemcpy;
      case Side::kDeviceNoWork:
        return EventKind::kCommDetail;
      default:
        return EventKind::kCpuOp;
    }
  }

  void add_slice(size_t i) {
    const Events& events = trace_.events;
    const EventKind kind = kind_of(i);
    format::Event& event = add(kind, events.ts[i], events.name[i], events.lane[i]);
    event.dur_ns = events.dur[i];
    if (events.correlation[i] != 0) {
      event.flags |= format::kHasCorrelation;
      event.correlation = events.correlation[i];
    }
    if (kind == EventKind::kComm) {
      const CommArgs& comm = trace_.comms[events.comm[i]];
      const bool send = trace_.names[comm.op] == "send";
      event.values = {comm.sequence, comm.in_elements, comm.out_elements, send ? comm.destination : comm.source};
      event.ref = intern_comm({text(comm.op), text(comm.group), text(comm.ranks), text(comm.dtype)});
      if (comm.async) event.flags |= format::kIsAsync;
    }
    if (events.details[i] == 0) return;
    const Details& details = trace_.details[events.details[i]];
    if (kind != EventKind::kComm) {
      const bool annotates = kind == EventKind::kUserAnnotation;
      event.values[0] = annotates ? details.microbatch : details.flops;
      event.values[1] = annotates ? details.chunk : details.bytes;
      if (event.values[0] >= 0) event.flags |= format::kHasFlops;
      if (event.values[1] >= 0) event.flags |= format::kHasBytes;
      if (details.dims != 0) {
        event.flags |= format::kHasShape;
        event.ref = tables_.intern_shapes(trace_.names[details.dims], trace_.names[details.types]);
      }
    }
    if (details.stack != 0) {
      event.flags |= format::kHasStack;
      event.stack = stacks_[details.stack];
    }
  }

  const RankTrace& trace_;
  format::Tables tables_;
  std::vector<uint16_t> lanes_;   // of the file, by lane of the store
  std::vector<uint32_t> stacks_;  // of the file, by stack of the store
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> comms_;
  std::vector<format::Event> events_;
};

}  // namespace

void write_native_trace(const RankTrace& trace, const std::string& path) {
  if (trace.meta.empty()) {
    throw core::Error(core::ErrorCode::kUnsupported,
                      core::cat(path, ": the native format holds what mstrain records, and the trace of rank ",
                                trace.rank, " is of another profiler; convert it to .json, .json.gz or .json.zst"));
  }
  const std::string partial = path + ".tmp";
  try {
    Writer(trace).write(partial);
    core::File::open_read(partial).fsync();
    core::rename_durably(partial, path);
  } catch (const core::Error&) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace ms::profile
