// Runs code in a process that is killed in the middle of writing.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "core/io/file.h"

namespace ms::test {

// Runs work in a child process that exits silently before its nth call that writes, syncs, allocates or renames (0: the
// first). Returns true if work finished before that.
inline bool survives(int nth, const std::function<void()>& work) {
  class Killer final : public core::FileOps {
   public:
    explicit Killer(int left) : left_(left) {}
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t offset) override {
      count();
      return core::FileOps::pwrite(fd, data, size, offset);
    }
    ssize_t write(int fd, const void* data, size_t size) override {
      count();
      return core::FileOps::write(fd, data, size);
    }
    int ring_result(int result, size_t size) override {
      count();
      return core::FileOps::ring_result(result, size);
    }
    int fsync(int fd) override {
      count();
      return core::FileOps::fsync(fd);
    }
    int fallocate(int fd, int64_t size) override {
      count();
      return core::FileOps::fallocate(fd, size);
    }
    int rename(const char* from, const char* to, bool replace) override {
      count();
      return core::FileOps::rename(from, to, replace);
    }

   private:
    void count() {
      if (left_-- == 0) ::_exit(1);
    }
    std::atomic<int> left_;
  };
  const pid_t child = ::fork();
  if (child == 0) {  // no gtest in the child: only _exit
    Killer killer(nth);
    core::set_file_ops_for_test(&killer);
    try {
      work();
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace ms::test
