#include "core/comm/detail/progress_thread.h"

#include "core/comm/communicator.h"
#include "core/thread_pool.h"

namespace ms::core::detail {

ProgressThread::ProgressThread(Endpoint& endpoint) : endpoint_(endpoint), thread_([this] { run(); }) {}

ProgressThread::~ProgressThread() {
  {
    const auto turn = this->turn();
    ends_ = true;
    wake();
  }
  thread_.join();
}

std::unique_lock<std::recursive_mutex> ProgressThread::turn() {
  ++waits_for_turn_;
  std::unique_lock turn(mutex_);
  --waits_for_turn_;
  return turn;
}

void ProgressThread::run() {
  flush_denormals_in_this_thread();  // sums have the bits of the rank's own
  while (true) {
    if (waits_for_turn_ == 0) {
      std::unique_lock turn(mutex_);
      posted_.wait(turn, [this] { return ends_ || !endpoint_.pending_.empty() || !endpoint_.urgent_.empty(); });
      if (ends_) return;
      try {
        endpoint_.advance_unpooled();
      } catch (...) {
        error_ = std::current_exception();
        return;
      }
    }
    std::this_thread::yield();
  }
}

}  // namespace ms::core::detail
