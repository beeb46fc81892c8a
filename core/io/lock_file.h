// Ensures one writer per directory with an flock on a file that names its holder. The lock ends with its processes, but
// a process that inherited the descriptor may outlive the holder: a trainer's writer process, which commits the last
// snapshot. Such a process is called an heir.
#pragma once

#include <string>

namespace ms::core {

// How long to wait for an heir, which has at most one save to write.
inline constexpr double kHeirPatienceS = 300;

class LockFile {
 public:
  // Takes the lock, or throws kIo naming the holder (process, host) if another process has it. If the holder has died
  // and an heir has the lock, waits for it first, for up to patience_s. On a file system without locks it always
  // succeeds. The holder may remove the file before it releases the lock. kNotFound if the directory is absent.
  explicit LockFile(const std::string& path, double patience_s = kHeirPatienceS);
  ~LockFile();
  // A process that inherits the descriptor holds the lock too, until the last copy is closed.
  int descriptor() const { return fd_; }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  int fd_ = -1;
};

// Waits until no heir of a dead process of this machine holds the lock. Returns at once if the file is unlocked or
// absent or its holder lives, and after patience_s at the latest. Logs once that it waits.
void wait_for_heir(const std::string& path, double patience_s = kHeirPatienceS);

}  // namespace ms::core
