// Records spans: one Recorder per rank, passed as a pointer (null or inactive: a predictable branch per span, no
// allocation, no file). Traces are read by profile; profile/FORMAT.md specifies the file.
//
// Event names and categories follow Kineto (PyTorch's profiler), so that third-party tools can read our traces.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/dtype.h"
#include "core/sharded_tensor.h"
#include "core/trace/tick_clock.h"

namespace ms::core::trace {

enum class Level : uint8_t { kLevel0, kLevel1, kLevel2 };

enum class Category : uint8_t {
  kUserAnnotation,  // "user_annotation": iteration ("ProfilerStep#N"), phases, ckpt.*
  kCpuOp,           // "cpu_op": operators of train/ops, with --profile-with-cpu
  kKernel,          // "kernel": computation; on the device lane ("stream 7") of the calling thread
  kRuntime,         // "cuda_runtime": submission of a kernel, with --profile-with-cpu
  kMemcpy,          // "gpu_memcpy": host copies and tier I/O, "stream 21"
};

struct Options {
  int rank = 0;
  int world_size = 1;
  Level level = Level::kLevel0;
  bool with_cpu = false;
  bool with_stack = false;
  bool with_memory = false;  // needs with_cpu
  bool record_shapes = false;
  std::string save_path = "./profile_dir";
};

// One collective or point-to-point operation, as seen by the communicator from start to completion.
struct CommEvent {
  std::string_view op;     // "allreduce", "reduce_scatter", "allgather", "bcast", "alltoall", "send", "recv", ...
  std::string_view group;  // "tp", "dp", "pp", "world", ...
  const std::vector<int>* ranks;  // world ranks of the group
  int64_t sequence = 0;           // the group's operation counter
  int64_t in_elements = 0, out_elements = 0;
  DType dtype = DType::kFp32;
  int peer = -1;                     // world rank: destination of a send, source of a recv, otherwise the root
  int64_t start_ns = 0, end_ns = 0;  // now_ns()
  int64_t wait_ns = -1;              // level1: from start until the last peer's data had arrived; < 0: unknown
  bool blocking = true;
};

int64_t now_ns();  // CLOCK_MONOTONIC

// Recorded times are rounded down to a multiple of this. A span costs two clock reads of 20 ns or more, so the bits
// below are noise, and would take a quarter of the file.
inline constexpr int64_t kResolution_ns = 16;

class Recorder final : public Arena::Observer {
 public:
  Recorder();
  ~Recorder() override;  // stops; never throws
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool active() const { return active_.load(std::memory_order_acquire); }
  const Options& options() const { return options_; }

  // Opens <save_path>/rank_%05d.mstrace (creating folders) and begins recording. Throws kIo, and kInvalidArgument for
  // with_memory without with_cpu. A recorder can be started again after stop.
  void start(const Options& options);
  // Writes the remaining events and the footer, and closes; does nothing if inactive. Throws kIo, also for a write that
  // failed earlier: recording never disturbs the training step, so errors are reported here.
  void stop();
  const std::string& path() const { return path_; }  // file of the last start; empty before
  // Counters that the kernel refused in this window (level2); empty if nothing is missing.
  const std::string& notice() const { return notice_; }
  // Offset of this rank's clock (own clock - rank 0's), measured at local time at_ns with error at most error_ns.
  void set_clock_offset(int64_t at_ns, int64_t offset_ns, int64_t error_ns);
  // While muted, comm() ignores this thread's events: messages that measure the clock are not part of the program.
  void mute_this_thread(bool muted);
  bool is_this_thread_muted();

  // The functions below are cheap and thread-safe (one log per thread), and do nothing when inactive. Threads that
  // record must stop before the recorder is destroyed.
  //
  // kCpuOp and kRuntime are kept with with_cpu only; then a kernel without a preceding kRuntime span of its thread gets
  // a cudaLaunchKernel of length 0 at its start, and both have the same correlation. flops, bytes: < 0 if unknown;
  // written for kernels at level1 and above (bytes of kMemcpy always). shapes, dtype: of the inputs, kept with
  // record_shapes (kCpuOp).
  void span(Category category, std::string_view name, int64_t start_ns, int64_t end_ns, int64_t flops = -1,
            int64_t bytes = -1, const std::vector<Dims>* shapes = nullptr, std::string_view dtype = {});
  void comm(const CommEvent& event);
  void counter(std::string_view name, int64_t ts_ns, double value);
  // [memory] instants, with with_memory. Pass the recorder to Arena::set_observer.
  void on_change(const void* address, int64_t delta_bytes, MemoryTag tag, int64_t total_bytes) override;

  // Called by Span at both ends: they maintain this thread's stack of open spans (with_stack) and measure the
  // submission of a kernel (with_cpu). open returns the start of the span and sets launch (-1: no submission recorded).
  // Times are ticks, converted to nanoseconds when written: tick_clock.h.
  int64_t open(Category category, std::string_view name, int64_t& launch) {
    return options_.with_cpu || options_.with_stack ? open_more(category, name, launch) : ticks();
  }
  void close(Category category, std::string_view name, int64_t launch, int64_t start, int64_t flops, int64_t bytes,
             const std::vector<Dims>* shapes, std::string_view dtype);

 private:
  struct Impl;
  struct ThreadLog;
  ThreadLog& log_of_this_thread();
  ThreadLog& find_log();
  int64_t ticks() const { return by_time_stamp_ ? time_stamp() : now_ns(); }
  int64_t open_more(Category category, std::string_view name, int64_t& launch);
  // Correlation of the work that the thread submits now; records its submission if the caller did not.
  uint32_t launch(ThreadLog& log, int64_t start, int64_t end, uint8_t clock_flag);
  // Times are ticks if clock_flag is kInTicks, nanoseconds if it is 0.
  void record(Category category, std::string_view name, int64_t launch, int64_t start, int64_t end, uint8_t clock_flag,
              int64_t flops, int64_t bytes, const std::vector<Dims>* shapes, std::string_view dtype);

  std::atomic<bool> active_{false};
  const bool by_time_stamp_ = time_stamps_are_usable();
  Options options_;
  std::string path_, notice_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::core::trace
