#include "core/thread_pool.h"

#include <algorithm>

#include "core/affinity.h"
#include "core/error.h"
#include "core/signals.h"
#include "core/wait.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ms::core {

void flush_denormals_in_this_thread() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040u);  // FTZ | DAZ
#endif
}

ThreadPool::ThreadPool(int num_threads) {
  MS_CHECK(num_threads >= 1, "num_threads ", num_threads);
  for (int t = 1; t < num_threads; ++t) {
    workers_.emplace_back([this, t] {
      flush_denormals_in_this_thread();
      const SignalStack signal_stack;
      work(t);
    });
  }
}

ThreadPool::ThreadPool(int num_threads, const CpuShares& cpus) : ThreadPool(num_threads) {
  for (int t = 1; t < num_threads; ++t) cpus.place(workers_[static_cast<size_t>(t) - 1], t);
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t blocks = (n + grain - 1) / grain;
  const auto parts = static_cast<int>(std::min<int64_t>(num_threads(), blocks));
  run_parts(parts, [&](int part) {
    const int64_t begin = blocks * part / parts * grain;
    const int64_t end = std::min(n, blocks * (part + 1) / parts * grain);
    if (begin < end) body(begin, end);
  });
}

void ThreadPool::run_parts(int parts, FunctionRef<void(int)> body) {
  if (workers_.empty() || parts <= 1) {
    for (int part = 0; part < parts; ++part) body(part);
    return;
  }
  body_ = &body;
  parts_ = parts;
  error_ = nullptr;
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  std::exception_ptr own_error;
  try {
    for (int part = 0; part < parts; part += num_threads()) body(part);
  } catch (...) {
    own_error = std::current_exception();
  }
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while(running_, left);
  }
  body_ = nullptr;
  if (own_error) std::rethrow_exception(own_error);
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    wait_while(generation_, seen);
    if (stop_) return;
    try {
      for (int part = thread; part < parts_; part += num_threads()) (*body_)(part);
    } catch (...) {
      std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace ms::core
