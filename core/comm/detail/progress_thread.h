// A thread that advances an endpoint's operations while the rank computes: MPI moves messages only within its calls.
//
// Rank and thread take turns: whoever calls the transport, or advances an operation, holds the turn. The rank goes
// first: the thread does not ask while the rank waits for its turn. The thread polls while operations run and sleeps
// otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace ms::core {
class Endpoint;
}

namespace ms::core::detail {

class ProgressThread {
 public:
  // endpoint must outlive it.
  explicit ProgressThread(Endpoint& endpoint);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // For the rank's thread.
  std::unique_lock<std::recursive_mutex> turn();
  // Holding the turn: an operation has been posted; an error on the thread.
  void wake() { posted_.notify_one(); }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  void run();
  Endpoint& endpoint_;
  std::recursive_mutex mutex_;
  std::condition_variable_any posted_;
  std::atomic<int> waits_for_turn_ = 0;
  bool ends_ = false;  // with error_, guarded by the turn
  std::exception_ptr error_;
  std::thread thread_;  // the last: begins when the rest is there
};

}  // namespace ms::core::detail
