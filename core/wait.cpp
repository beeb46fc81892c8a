#include "core/wait.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ms::core {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

void wait_while(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
}

void SpinMutex::lock() {
  for (int i = 0; i < kSpins; ++i) {
    if (mutex_.try_lock()) return;
    pause_briefly();
  }
  mutex_.lock();
}

}  // namespace ms::core
