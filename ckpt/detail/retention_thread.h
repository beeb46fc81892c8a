// The retention of a coordinator, on a thread of its own: where a file system discards the blocks that it frees,
// removing a generation takes as long as writing it, and the next save need not stand behind that.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "ckpt/retention.h"

namespace ms::ckpt {

class RetentionThread {
 public:
  RetentionThread() = default;
  // Returns when nothing is left to remove.
  ~RetentionThread();
  RetentionThread(const RetentionThread&) = delete;
  RetentionThread& operator=(const RetentionThread&) = delete;

  // A generation was committed in root: removes those that it supersedes. Waits for the removal before, so that no more
  // than one commit's worth of old generations is ever on its way out. What cannot be removed is a warning in the log.
  // The thread has the niceness and the CPUs of the first caller.
  void committed(const std::filesystem::path& root, const std::filesystem::path& generation,
                 const Retention& retention);

  // Whether nothing is left to remove, within so many seconds.
  bool wait(double limit_s);

 private:
  struct Commit {
    std::filesystem::path root, generation;
    Retention retention;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Commit> commit_;  // being worked off
  bool closing_ = false;
  std::thread thread_;  // begun by the first commit that there is something to do for
};

}  // namespace ms::ckpt
