// Waiting for another thread that will be ready within microseconds: the waiting thread spins before it sleeps, because
// a wake-up by the kernel takes longer, and a thread that is woken often continues on the processor of the one that
// woke it and keeps that from running.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ms::core {

inline constexpr int kSpins = 2000;  // pauses: 35 us on Zen 4, 75 us on Sapphire Rapids

// Returns once `value` is not `old`, which the other thread announces by value.notify_all(). Sleeps after `spins`
// pauses.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old, int spins = kSpins);

// A mutex for work of less than a microsecond: a thread that finds it locked spins before it sleeps.
class SpinMutex {
 public:
  void lock();
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace ms::core
