// One writer per directory: an flock on a file that says who holds it. A dead process holds nothing, whatever it left,
// but what inherited the descriptor may go on: a trainer's writer process, which commits the last snapshot.
#pragma once

#include <string>

namespace ms::core {

// How long an heir is waited for: it has as much to write as one save.
inline constexpr double kHeirPatienceS = 300;

class LockFile {
 public:
  // Takes the lock, or throws kIo naming the holder (process, host) if another one has it. If that one has died and an
  // heir of it still has the lock, it is waited for first, as below. On a file system without locks it is as if it were
  // taken. The holder may remove the file before it lets go. kNotFound if its directory is absent.
  explicit LockFile(const std::string& path, double patience_s = kHeirPatienceS);
  ~LockFile();
  // Whoever inherits it holds the lock too, until the last of them closes it.
  int descriptor() const { return fd_; }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  int fd_ = -1;
};

// Returns when the file is not locked by an heir of a process of this machine that has died: at once if it is free, if
// its holder lives, or if there is no such file; after patience_s at the latest. Says once in the log that it waits.
void wait_for_heir(const std::string& path, double patience_s = kHeirPatienceS);

}  // namespace ms::core
