// The coordinator's retention on its own thread. On a file system that discards freed blocks, removing a generation
// takes as long as writing it; the next save must not wait for that.
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

  // Call after a commit in root: removes the generations that it supersedes. Waits for the previous removal, so that at
  // most one commit's worth of old generations is being removed. A failed removal is logged as a warning.
  // The thread inherits niceness and CPUs of the first caller.
  void committed(const std::filesystem::path& root, const std::filesystem::path& generation,
                 const Retention& retention);

  // Waits for at most limit_s; true if nothing is left to remove.
  bool wait(double limit_s);

 private:
  struct Commit {
    std::filesystem::path root, generation;
    Retention retention;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Commit> commit_;  // being processed
  bool closing_ = false;
  std::thread thread_;  // started by the first commit that supersedes something
};

}  // namespace ms::ckpt
