#include "core/io/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"

namespace ms::core {
namespace {

std::string holder_text() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return cat("process ", ::getpid(), " on ", host, ", boot ", boot, "\n");
}

}  // namespace

LockFile::LockFile(const std::string& path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error(ErrorCode::kIo, cat("cannot open ", path, ": ", std::strerror(errno)));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    char text[512] = {};
    const ssize_t n = ::pread(fd_, text, sizeof text - 1, 0);
    ::close(fd_);
    std::string holder(text, static_cast<size_t>(n > 0 ? n : 0));
    holder = holder.substr(0, holder.find('\n'));
    throw Error(ErrorCode::kIo, cat(path, " is held by ", holder.empty() ? "another process" : holder,
                                    ". Two writers cannot share one directory: wait for it, or use another one."));
  }
  const std::string text = holder_text();
  // For messages only: that it cannot be written must not stop the work.
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) return;
}

LockFile::~LockFile() { ::close(fd_); }

}  // namespace ms::core
