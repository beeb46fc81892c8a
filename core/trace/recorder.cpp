#include "core/trace/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"
#include "core/trace/detail/event_queue.h"
#include "core/trace/detail/name_cache.h"
#include "core/trace/file_writer.h"
#include "core/trace/perf_counters.h"
#include "core/trace/tick_clock.h"

namespace ms::core::trace {
namespace {

constexpr auto kDrainPeriod = std::chrono::milliseconds(20);
constexpr int64_t kWritePeriod_ns = 1'000'000'000;  // most that a killed run loses
constexpr int64_t kSamplePeriod_ns = 100'000'000;   // between samples of the perf counters

// Stream numbers of the trace: compute 7, communication 20 and from 22 on, copies 21; each further thread's are
// kStreamsPerThread higher.
constexpr int64_t kComputeStream = 7, kCommStream = 20, kMemcpyStream = 21, kStreamsPerThread = 1000;

int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

EventKind kind_of(Category category) {
  switch (category) {
    case Category::kUserAnnotation:
      return EventKind::kUserAnnotation;
    case Category::kCpuOp:
      return EventKind::kCpuOp;
    case Category::kKernel:
      return EventKind::kKernel;
    case Category::kRuntime:
      return EventKind::kRuntime;
    case Category::kMemcpy:
      return EventKind::kMemcpy;
  }
  MS_CHECK(false, "category ", static_cast<int>(category));
}

std::string_view level_name(Level level) {
  return level == Level::kLevel0 ? "level0" : level == Level::kLevel1 ? "level1" : "level2";
}

// (monotonic, realtime), read together.
nlohmann::json clock_pair() { return {clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_REALTIME)}; }

std::atomic<uint64_t> next_identity{1};

}  // namespace

int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }

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
  const uint64_t identity = next_identity.fetch_add(1);
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

Recorder::Recorder() : impl_(std::make_unique<Impl>()) {}

Recorder::~Recorder() {
  try {
    stop();
  } catch (const std::exception& e) {
    log_warning("core.trace", e.what());
  }
}

void Recorder::start(const Options& options) {
  MS_CHECK(!active(), "the recorder of ", path_, " is active");
  if (options.with_memory && !options.with_cpu) {
    throw Error(ErrorCode::kInvalidArgument, "--profile-with-memory needs --profile-with-cpu: add it");
  }
  std::error_code failed;
  std::filesystem::create_directories(options.save_path, failed);
  if (failed) {
    throw Error(ErrorCode::kIo, cat("create folder ", options.save_path, ": ", failed.message(),
                                    "; choose another --profile-save-path"));
  }
  char name[32];
  std::snprintf(name, sizeof(name), "rank_%05d.mstrace", options.rank);
  path_ = (std::filesystem::path(options.save_path) / name).string();
  options_ = options;

  Impl& impl = *impl_;
  const nlohmann::json meta = {{"format", kFormatVersion},
                               {"producer", "msuite"},
                               {"rank", options.rank},
                               {"world_size", options.world_size},
                               {"level", level_name(options.level)},
                               {"with_cpu", options.with_cpu},
                               {"with_stack", options.with_stack},
                               {"with_memory", options.with_memory},
                               {"record_shapes", options.record_shapes},
                               {"pid", static_cast<int64_t>(::getpid())},
                               {"start_clocks_ns", clock_pair()}};
  impl.file = std::make_unique<FileWriter>(path_, meta);
  impl.clock.emplace(by_time_stamp_);
  impl.drain();  // discards events recorded while the last window was being closed
  impl.pending.clear();
  impl.dropped = 0;
  impl.error = nullptr;
  impl.stopping = false;
  impl.written_ns = now_ns();
  impl.window.fetch_add(1);
  notice_.clear();
  if (options.level == Level::kLevel2) {
    impl.perf = std::make_unique<PerfCounters>();
    notice_ = impl.perf->notice();
    impl.sample_perf(now_ns());
  }
  impl.writer = std::thread([&impl] { impl.write_until_stopped(); });
  active_.store(true);
}

void Recorder::stop() {
  if (!active_.exchange(false)) return;
  Impl& impl = *impl_;
  {
    const std::lock_guard lock(impl.stop_mutex);
    impl.stopping = true;
  }
  impl.stop_signal.notify_all();
  impl.writer.join();
  impl.drain();
  if (impl.perf) impl.sample_perf(now_ns());
  impl.perf.reset();
  impl.write_pending();
  const std::unique_ptr<FileWriter> file = std::move(impl.file);
  if (impl.error) std::rethrow_exception(impl.error);
  file->finish({{"dropped", impl.dropped}, {"end_clocks_ns", clock_pair()}});
  if (impl.dropped > 0) {
    log_warning("core.trace", cat(path_, ": ", impl.dropped,
                                  " events were dropped, the writer could not keep up: profile fewer steps or ranks"));
  }
}

void Recorder::set_clock_offset(int64_t at_ns, int64_t offset_ns, int64_t error_ns) {
  if (!active()) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->clocks.push_back({at_ns, offset_ns, error_ns});
}

// Inlined into every span, like record(): calls between these functions would cost a fifth of a span.
[[gnu::always_inline]] inline Recorder::ThreadLog& Recorder::log_of_this_thread() {
  // Recorders have identities that are never reused, so a stale pointer is never followed.
  thread_local uint64_t owner = 0;
  thread_local ThreadLog* known = nullptr;
  if (owner != impl_->identity) [[unlikely]] {
    known = &find_log();
    owner = impl_->identity;
  }
  return *known;
}

[[gnu::noinline]] Recorder::ThreadLog& Recorder::find_log() {
  const std::lock_guard lock(impl_->mutex);
  std::unique_ptr<ThreadLog>& log = impl_->logs[std::this_thread::get_id()];
  if (log == nullptr) {
    log = std::make_unique<ThreadLog>();
    char name[16] = "";
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
    log->thread_lane = impl_->add_lane(LaneKind::kThread, ::syscall(SYS_gettid), name);
  }
  return *log;
}

void Recorder::mute_this_thread(bool muted) {
  if (active()) log_of_this_thread().muted = muted;
}

uint32_t Recorder::launch(ThreadLog& log, int64_t start, int64_t end, uint8_t clock_flag) {
  if (log.launched != 0) return std::exchange(log.launched, 0);
  Event event;
  event.kind = EventKind::kRuntime;
  event.flags = kHasCorrelation | clock_flag;
  event.start_ns = start;
  event.dur_ns = std::max<int64_t>(0, end - start);
  event.lane = log.thread_lane;
  event.name = impl_->name_id(log, "cudaLaunchKernel");
  event.correlation = impl_->next_correlation.fetch_add(1, std::memory_order_relaxed);
  if (options_.with_stack) impl_->add_stack(log, event);
  log.queue.push(event);
  return event.correlation;
}

[[gnu::always_inline]] inline void Recorder::record(Category category, std::string_view name, int64_t launch,
                                                    int64_t start, int64_t end, uint8_t clock_flag, int64_t flops,
                                                    int64_t bytes, const std::vector<Dims>* shapes,
                                                    std::string_view dtype) {
  const bool host_only = category == Category::kCpuOp || category == Category::kRuntime;
  if (host_only && !options_.with_cpu) return;
  ThreadLog& log = log_of_this_thread();
  Impl& impl = *impl_;
  const uint32_t id = impl.name_id(log, name);
  uint16_t lane = log.thread_lane;
  if (category == Category::kKernel) {
    lane = impl.stream_lane(log.compute_lane, kComputeStream, impl.compute_lanes);
  } else if (category == Category::kMemcpy) {
    lane = impl.stream_lane(log.memcpy_lane, kMemcpyStream, impl.memcpy_lanes);
  }
  uint8_t flags = clock_flag;
  const bool detailed = options_.level != Level::kLevel0;
  if (flops >= 0 && detailed) flags |= kHasFlops;
  if (bytes >= 0 && (detailed || category == Category::kMemcpy)) flags |= kHasBytes;
  const int64_t dur = std::max<int64_t>(0, end - start);
  if (!options_.with_cpu && !options_.with_stack) {  // most spans: without building an Event
    log.queue.push_span(id, lane, kind_of(category), flags, start, dur, flops, bytes);
    return;
  }
  Event event;
  event.kind = kind_of(category);
  event.flags = flags;
  event.start_ns = start;
  event.dur_ns = dur;
  event.values[0] = flops;
  event.values[1] = bytes;
  event.name = id;
  event.lane = lane;
  if (options_.with_stack) impl.add_stack(log, event);
  if (category == Category::kRuntime) {
    event.flags |= kHasCorrelation;
    event.correlation = log.launched = impl.next_correlation.fetch_add(1, std::memory_order_relaxed);
  } else if (category == Category::kCpuOp && options_.record_shapes && shapes != nullptr) {
    std::string dims = "[", types = "[";
    for (size_t i = 0; i < shapes->size(); ++i) {
      dims += cat(i == 0 ? "" : ", ", (*shapes)[i]);
      types += cat(i == 0 ? "\"" : ", \"", dtype, "\"");
    }
    const std::lock_guard lock(impl.mutex);
    event.ref = impl.tables.intern_shapes(dims + "]", types + "]");
    event.flags |= kHasShape;
  }
  if (options_.with_cpu && (category == Category::kKernel || category == Category::kMemcpy)) {
    event.flags |= kHasCorrelation;
    event.correlation = this->launch(log, launch >= 0 ? launch : start, start, clock_flag);
  }
  log.queue.push(event);
}

int64_t Recorder::open_more(Category category, std::string_view name, int64_t& launch) {
  if (options_.with_stack) {
    ThreadLog& log = log_of_this_thread();
    const uint64_t window = impl_->window.load(std::memory_order_relaxed);
    if (std::exchange(log.window, window) != window) log.open_spans.clear();
    log.open_spans.push_back(impl_->child_stack(log, impl_->name_id(log, name)));
  }
  const int64_t start = ticks();
  if (!options_.with_cpu || (category != Category::kKernel && category != Category::kMemcpy)) return start;
  launch = start;
  return ticks();
}

void Recorder::close(Category category, std::string_view name, int64_t launch, int64_t start, int64_t flops,
                     int64_t bytes, const std::vector<Dims>* shapes, std::string_view dtype) {
  const int64_t end = ticks();
  if (!active()) return;
  if (options_.with_stack) {
    ThreadLog& log = log_of_this_thread();
    if (log.window == impl_->window.load(std::memory_order_relaxed) && !log.open_spans.empty()) {
      log.open_spans.pop_back();
    }
  }
  record(category, name, launch, start, end, kInTicks, flops, bytes, shapes, dtype);
}

void Recorder::span(Category category, std::string_view name, int64_t start_ns, int64_t end_ns, int64_t flops,
                    int64_t bytes, const std::vector<Dims>* shapes, std::string_view dtype) {
  if (!active()) return;
  record(category, name, -1, start_ns, end_ns, 0, flops, bytes, shapes, dtype);
}

void Recorder::comm(const CommEvent& event) {
  if (!active()) return;
  ThreadLog& log = log_of_this_thread();
  if (log.muted) return;
  const ThreadLog::Group& group = impl_->group_of(log, event);
  Event out;
  out.kind = EventKind::kComm;
  out.start_ns = event.start_ns;
  out.dur_ns = std::max<int64_t>(0, event.end_ns - event.start_ns);
  out.values = {event.sequence, event.in_elements, event.out_elements, event.peer};
  out.name = group.name;
  out.ref = group.descriptor;
  out.lane = group.lane;
  if (!event.blocking) out.flags |= kIsAsync;
  if (options_.with_stack) impl_->add_stack(log, out);
  if (options_.with_cpu) {
    out.flags |= kHasCorrelation;
    out.correlation = launch(log, event.start_ns, event.start_ns, 0);
  }
  log.queue.push(out);
  if (options_.level == Level::kLevel0 || event.wait_ns < 0) return;
  const int64_t wait_ns = std::min(event.wait_ns, out.dur_ns);
  Event part;
  part.kind = EventKind::kCommDetail;
  part.lane = group.lane;
  part.start_ns = out.start_ns;
  part.dur_ns = wait_ns;
  part.name = impl_->name_id(log, "wait");
  log.queue.push(part);
  part.start_ns += wait_ns;
  part.dur_ns = out.dur_ns - wait_ns;
  part.name = impl_->name_id(log, "transfer");
  log.queue.push(part);
}

void Recorder::counter(std::string_view name, int64_t ts_ns, double value) {
  if (!active()) return;
  ThreadLog& log = log_of_this_thread();
  Event event;
  event.kind = EventKind::kCounter;
  event.start_ns = ts_ns;
  event.name = impl_->name_id(log, name);
  event.lane = log.thread_lane;
  event.values[0] = std::bit_cast<int64_t>(value);
  log.queue.push(event);
}

void Recorder::on_change(const void* address, int64_t delta_bytes, MemoryTag tag, int64_t total_bytes) {
  if (!active() || !options_.with_memory) return;
  ThreadLog& log = log_of_this_thread();
  Event event;
  event.kind = EventKind::kMemory;
  event.start_ns = now_ns();
  event.name = impl_->name_id(log, memory_tag_name(tag));
  event.lane = log.thread_lane;
  event.values = {static_cast<int64_t>(reinterpret_cast<uintptr_t>(address)), delta_bytes, total_bytes, 0};
  log.queue.push(event);
}

}  // namespace ms::core::trace
