// What a Recorder owns: its tables, the threads that record, and the thread that drains them into the file.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/trace/detail/event_queue.h"
#include "core/trace/detail/name_cache.h"
#include "core/trace/file_writer.h"
#include "core/trace/perf_counters.h"
#include "core/trace/recorder.h"
#include "core/trace/tick_clock.h"

namespace ms::core::trace {

inline constexpr auto kDrainPeriod = std::chrono::milliseconds(20);
inline constexpr int64_t kWritePeriod_ns = 1'000'000'000;  // most that a killed run loses
inline constexpr int64_t kSamplePeriod_ns = 100'000'000;   // between samples of the perf counters

// Stream numbers of the trace: compute 7, communication 20 and from 22 on, copies 21; each further thread's are
// kStreamsPerThread higher.
inline constexpr int64_t kComputeStream = 7, kCommStream = 20, kMemcpyStream = 21, kStreamsPerThread = 1000;

// State with which a thread records without locks. Written by its thread only, except the consumer end of the queue.
struct Recorder::ThreadLog {
  struct Group {  // the calls of one operation of one group
    std::string op, group;
    DType dtype;
    std::vector<int> ranks;
    uint32_t descriptor, name;
    uint16_t lane;
  };
  detail::EventQueue queue;
  detail::NameCache names;
  std::vector<Group> groups;
  std::unordered_map<uint64_t, uint32_t> stack_ids;  // (parent, name) -> Tables::stacks
  std::vector<uint32_t> open_spans;                  // indices of Tables::stacks, innermost last
  uint64_t window = 0;                               // to which open_spans belong
  uint32_t launched = 0;                             // correlation of a kRuntime span whose kernel has not begun
  bool muted = false;                                // comm() records nothing
  uint16_t thread_lane = 0;
  std::optional<uint16_t> compute_lane, memcpy_lane;

  uint32_t stack() const { return open_spans.empty() ? 0 : open_spans.back(); }
};

struct Recorder::Impl {
  explicit Impl(uint64_t number) : identity(number) {}

  const uint64_t identity;  // no other recorder of the process has it
  std::atomic<uint64_t> window{0};
  std::atomic<uint32_t> next_correlation{1};

  std::mutex mutex;  // guards the members below, up to `clocks`
  Tables tables;
  std::map<std::thread::id, std::unique_ptr<ThreadLog>> logs;
  std::map<std::pair<std::string, std::vector<int>>, uint16_t> group_lanes;
  std::optional<uint16_t> counter_lane;
  int64_t compute_lanes = 0, memcpy_lanes = 0;
  struct Clock {
    int64_t at_ns, offset_ns, error_ns;
  };
  std::vector<Clock> clocks;

  // Used by the writer thread; by stop() after it has ended.
  std::unique_ptr<FileWriter> file;
  std::unique_ptr<PerfCounters> perf;
  std::optional<TickClock> clock;  // of the window
  std::vector<Event> pending;
  int64_t dropped = 0, written_ns = 0, sampled_ns = 0;
  std::exception_ptr error;
  std::thread writer;
  std::mutex stop_mutex;
  std::condition_variable stop_signal;
  bool stopping = false;

  uint16_t add_lane(LaneKind kind, int64_t id, std::string_view name) {
    MS_CHECK(tables.lanes.size() < UINT16_MAX, "too many threads recorded");
    tables.lanes.push_back({kind, id, tables.intern(name)});
    return static_cast<uint16_t>(tables.lanes.size() - 1);
  }

  uint32_t name_id(ThreadLog& log, std::string_view name) {
    return log.names.find(name, [this](std::string_view text) {
      const std::lock_guard lock(mutex);
      const uint32_t id = tables.intern(text);
      return std::pair<uint32_t, const std::string*>(id, &tables.strings[id]);
    });
  }

  // Stores the open spans of this thread as the event's call stack.
  void add_stack(const ThreadLog& log, Event& event) const {
    if (log.open_spans.empty() || log.window != window.load(std::memory_order_relaxed)) return;
    event.flags |= kHasStack;
    event.stack = log.open_spans.back();
  }

  uint32_t child_stack(ThreadLog& log, uint32_t name) {
    const auto [entry, added] = log.stack_ids.try_emplace(static_cast<uint64_t>(log.stack()) << 32 | name, 0);
    if (added) {
      const std::lock_guard lock(mutex);
      entry->second = tables.intern_stack(log.stack(), name);
    }
    return entry->second;
  }

  uint16_t stream_lane(std::optional<uint16_t>& lane, int64_t stream, int64_t& count) {
    if (!lane) {
      const std::lock_guard lock(mutex);
      const int64_t id = stream + kStreamsPerThread * count++;
      lane = add_lane(LaneKind::kStream, id, cat("stream ", id));
    }
    return *lane;
  }

  const ThreadLog::Group& group_of(ThreadLog& log, const CommEvent& event) {
    static const std::vector<int> nobody;
    const std::vector<int>& ranks = event.ranks != nullptr ? *event.ranks : nobody;
    for (const ThreadLog::Group& known : log.groups) {
      if (known.op == event.op && known.group == event.group && known.dtype == event.dtype && known.ranks == ranks) {
        return known;
      }
    }
    const std::lock_guard lock(mutex);
    auto [lane, added] = group_lanes.try_emplace({std::string(event.group), ranks}, uint16_t{0});
    if (added) {
      const auto index = static_cast<int64_t>(group_lanes.size()) - 1;  // 20, 22, 23, ..; 21 is used for copies
      const int64_t stream = index == 0 ? kCommStream : kMemcpyStream + index;
      lane->second = add_lane(LaneKind::kStream, stream, cat("stream ", stream, " ", event.group));
    }
    CommDescriptor descriptor;
    descriptor.op = tables.intern(event.op);
    descriptor.group = tables.intern(event.group);
    descriptor.ranks = tables.intern(cat(ranks));
    descriptor.dtype = tables.intern(dtype_name(event.dtype));
    tables.comms.push_back(descriptor);
    log.groups.push_back({std::string(event.op), std::string(event.group), event.dtype, ranks,
                          static_cast<uint32_t>(tables.comms.size() - 1),
                          tables.intern(cat(event.op, "(", event.group, ")")), lane->second});
    return log.groups.back();
  }

  void drain() {
    const size_t known = pending.size();
    {
      const std::lock_guard lock(mutex);
      for (auto& [thread, log] : logs) {
        log->queue.drain(pending);
        dropped += log->queue.take_dropped();
      }
    }
    clock->mark();  // after everything has been drained
    for (Event& event : std::span(pending).subspan(known)) {
      int64_t start_ns = event.start_ns, end_ns = start_ns + event.dur_ns;
      if (event.flags & kInTicks) {
        start_ns = clock->ns(start_ns);
        end_ns = clock->ns(end_ns);
        event.flags &= static_cast<uint8_t>(~kInTicks);
      }
      event.start_ns = start_ns & ~(kResolution_ns - 1);
      event.dur_ns = (end_ns & ~(kResolution_ns - 1)) - event.start_ns;
    }
  }

  void sample_perf(int64_t ts_ns) {
    sampled_ns = ts_ns;
    perf->sample([&](std::string_view series, double value) {
      const std::lock_guard lock(mutex);
      if (!counter_lane) counter_lane = add_lane(LaneKind::kThread, 0, "counters");
      Event event;
      event.lane = *counter_lane;
      event.kind = EventKind::kCounter;
      event.start_ns = ts_ns;
      event.name = tables.intern(series);
      event.values[0] = std::bit_cast<int64_t>(value);
      pending.push_back(event);
    });
  }

  void write_pending() {
    written_ns = now_ns();
    std::vector<Clock> measured;
    {
      const std::lock_guard lock(mutex);
      measured.swap(clocks);
    }
    try {
      if (!error) {
        for (const Clock& known : measured) file->write_clock(known.at_ns, known.offset_ns, known.error_ns);
        for (std::span<Event> rest = pending; !rest.empty();) {
          const auto part = rest.first(std::min(rest.size(), kMaxChunkEvents));
          // Threads that intern a new name wait for the encoding of one chunk at most.
          const std::lock_guard lock(mutex);
          file->write_events(part, tables);
          rest = rest.subspan(part.size());
        }
      }
    } catch (...) {
      error = std::current_exception();
    }
    pending.clear();
  }

  void write_until_stopped() {
    std::unique_lock lock(stop_mutex);
    while (!stop_signal.wait_for(lock, kDrainPeriod, [this] { return stopping; })) {
      lock.unlock();
      drain();
      const int64_t now = now_ns();
      if (perf && now - sampled_ns >= kSamplePeriod_ns) sample_perf(now);
      if (pending.size() >= kMaxChunkEvents || now - written_ns >= kWritePeriod_ns) write_pending();
      lock.lock();
    }
  }
};

}  // namespace ms::core::trace
