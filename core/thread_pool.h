// The pool of compute threads, one per rank. Kernels start no threads: the pool splits their rows.
//
// The split is static and depends only on n, grain and the number of threads, so results do not depend on timing. A
// thread that waits for work or for other threads spins for about 50 microseconds before it sleeps: a step has hundreds
// of parallel regions, many as short as a wake-up by the kernel. No call allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/function_ref.h"

namespace ms::core {

class CpuShares;  // core/affinity.h

class ThreadPool {
 public:
  // num_threads includes the caller: 1 starts no thread.
  explicit ThreadPool(int num_threads = 1);
  // With each thread on its share of the CPUs, for a task of milliseconds.
  ThreadPool(int num_threads, const CpuShares& cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) on disjoint ranges that cover [0, n), at most one per thread, each a multiple of grain
  // except the last. Returns when all are done. Rethrows the first exception of a body. One caller at a time.
  void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

  // Calls body(part) for part in [0, parts), part p on thread p % num_threads.
  void run_parts(int parts, FunctionRef<void(int part)> body);

 private:
  void work(int thread);

  std::vector<std::thread> workers_;
  // The current region, written by the caller before it increments generation_.
  const FunctionRef<void(int)>* body_ = nullptr;
  int parts_ = 0;
  bool stop_ = false;
  std::atomic<uint32_t> generation_{0};  // number of regions; wraps
  std::atomic<uint32_t> running_{0};     // workers that have not finished the region
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// Flushes denormals to zero in the calling thread (FTZ and DAZ), because they make fp32 arithmetic 44 times slower. The
// pool calls it in its threads; main functions call it in theirs.
void flush_denormals_in_this_thread();

}  // namespace ms::core
