#include "core/trace/recorder.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"
#include "core/trace/detail/recorder_impl.h"

namespace ms::core::trace {
namespace {

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

Recorder::Recorder() : impl_(std::make_unique<Impl>(next_identity.fetch_add(1))) {}

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
    throw Error(ErrorCode::kIo, cat("cannot create folder ", options.save_path, ": ", failed.message(),
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

bool Recorder::is_this_thread_muted() { return log_of_this_thread().muted; }

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
  const bool detailed = options_.level != Level::kLevel0 || category == Category::kUserAnnotation;
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
