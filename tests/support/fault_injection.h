// Injects disk errors: among the calls of core::FileOps, one kind fails at the nth call, or every write is short.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "core/io/file.h"

namespace ms::test {

// Active from construction to destruction, for the whole process.
class FaultInjection final : public core::FileOps {
 public:
  enum class Kind { kNone, kWrite, kFsync, kAllocate, kRename, kShortWrites };
  // error: an errno. kShortWrites: every third write is interrupted, the others write at most 1000 bytes.
  FaultInjection(Kind kind, int nth, int error) : kind_(kind), nth_(nth), error_(error) {
    core::set_file_ops_for_test(this);
  }
  ~FaultInjection() override { core::set_file_ops_for_test(nullptr); }
  int calls() const { return calls_; }  // calls of the kind that fails

  ssize_t pwrite(int fd, const void* data, size_t size, int64_t offset) override {
    return may_write(size) ? core::FileOps::pwrite(fd, data, size, offset) : -1;
  }
  ssize_t write(int fd, const void* data, size_t size) override {
    return may_write(size) ? core::FileOps::write(fd, data, size) : -1;
  }
  int ring_result(int result, size_t size) override {
    if (!may_write(size)) return -errno;
    return std::min(result, static_cast<int>(size));
  }
  int fsync(int fd) override { return fails(Kind::kFsync) ? -1 : core::FileOps::fsync(fd); }
  int fallocate(int fd, int64_t size) override {
    return fails(Kind::kAllocate) ? error_ : core::FileOps::fallocate(fd, size);
  }
  int rename(const char* from, const char* to, bool replace) override {
    return fails(Kind::kRename) ? -1 : core::FileOps::rename(from, to, replace);
  }

 private:
  bool may_write(size_t& size) {
    if (kind_ == Kind::kShortWrites) {
      if (calls_++ % 3 == 0) {
        errno = EINTR;
        return false;
      }
      size = std::min<size_t>(size, 1000);
    }
    return !fails(Kind::kWrite);
  }
  bool fails(Kind kind) {
    if (kind != kind_ || calls_++ != nth_) return false;
    errno = error_;
    return true;
  }
  const Kind kind_;
  const int nth_, error_;
  std::atomic<int> calls_{0};
};

}  // namespace ms::test
