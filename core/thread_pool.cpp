#include "core/thread_pool.h"

#include <algorithm>

#include "core/error.h"
#include "core/signals.h"
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

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
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

void ThreadPool::run_parts(int parts, const std::function<void(int)>& body) {
  if (workers_.empty() || parts <= 1) {
    for (int part = 0; part < parts; ++part) body(part);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    parts_ = parts;
    running_ = static_cast<int>(workers_.size());
    error_ = nullptr;
    ++generation_;
  }
  start_.notify_all();
  std::exception_ptr own_error;
  try {
    for (int part = 0; part < parts; part += num_threads()) body(part);
  } catch (...) {
    own_error = std::current_exception();
  }
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
  if (own_error) std::rethrow_exception(own_error);
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  while (true) {
    std::unique_lock lock(mutex_);
    start_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    const auto* body = body_;
    const int parts = parts_;
    lock.unlock();
    std::exception_ptr error;
    try {
      for (int part = thread; part < parts; part += num_threads()) (*body)(part);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    if (--running_ == 0) done_.notify_one();
  }
}

}  // namespace ms::core
