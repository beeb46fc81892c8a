#include "core/io/lock_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/error.h"
#include "core/log.h"

namespace ms::core {
namespace {

std::string machine_text() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return cat(" on ", host, ", boot ", boot);
}

std::string holder_of(int fd) {
  char text[512] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  std::string holder(text, static_cast<size_t>(n > 0 ? n : 0));
  holder = holder.substr(0, holder.find('\n'));
  return holder.empty() ? "another process" : holder;
}

// Whether the process that the lock's text names was on this machine and has ended, or is a zombie.
bool has_died(const std::string& holder) {
  long long pid = 0;
  int end = 0;
  if (std::sscanf(holder.c_str(), "process %lld%n", &pid, &end) != 1 || pid <= 0) return false;
  if (holder.substr(static_cast<size_t>(end)) != machine_text()) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  std::ifstream file(cat("/proc/", pid, "/stat"));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && (stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X');
}

// Takes the lock with a flock(2) operation; waits while the descendants of a dead holder keep it. False if a live
// process has it, or they keep it longer than patience_s.
bool take(int fd, const std::string& path, int operation, double patience_s) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  bool said = false;
  while (::flock(fd, operation | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string holder = holder_of(fd);
    if (!has_died(holder) || std::chrono::duration<double>(Clock::now() - start).count() >= patience_s) return false;
    if (!said) {
      log_info("core.lock", cat(path, ": ", holder,
                                " has died, but a process that it started still writes; waiting for it for up to ",
                                patience_s, " s"));
    }
    said = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Whether the name still refers to the open file: the previous holder may have removed it.
bool is_named(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace

LockFile::LockFile(const std::string& path, double patience_s) {
  do {
    if (fd_ >= 0) ::close(fd_);
    // Does not follow a link, because its target would be overwritten below.
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd_ < 0) {
      throw Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                  cat("cannot open ", path, ": ", std::strerror(errno)));
    }
    if (take(fd_, path, LOCK_EX, patience_s)) continue;
    const std::string holder = holder_of(fd_);
    ::close(fd_);
    throw Error(ErrorCode::kIo,
                cat(path, " is held by ", holder, has_died(holder) ? ", or by a process that it started" : "",
                    ". Two writers cannot share one directory: wait for it, or use another one."));
  } while (!is_named(fd_, path));
  const std::string text = cat("process ", ::getpid(), machine_text(), "\n");
  // Only used in messages, so a failure to write it is ignored.
  if (::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) < 0) return;
}

LockFile::~LockFile() { ::close(fd_); }

void wait_for_heir(const std::string& path, double patience_s) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  take(fd, path, LOCK_SH, patience_s);
  ::close(fd);
}

}  // namespace ms::core
