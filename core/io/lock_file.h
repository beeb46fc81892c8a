// One writer per directory: an flock on a file that says who holds it. A dead process holds nothing, whatever it left.
#pragma once

#include <string>

namespace ms::core {

class LockFile {
 public:
  // Takes the lock, or throws kIo naming the holder (process, host) if another one has it. On a file system without
  // locks it is as if it were taken.
  explicit LockFile(const std::string& path);
  ~LockFile();
  // Whoever inherits it holds the lock too, until the last of them closes it.
  int descriptor() const { return fd_; }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace ms::core
