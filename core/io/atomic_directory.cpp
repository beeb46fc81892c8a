#include "core/io/atomic_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/io/file.h"

namespace ms::core {

std::string temporary_suffix() {
  static std::atomic<int> counter{0};
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string name(host);
  for (char& c : name) {
    if (c == '/' || c == '-') c = '_';
  }
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return cat(".tmp-", name, "-", ::getpid(), "-", std::hex, now.tv_nsec ^ (now.tv_sec << 20), std::dec, "_",
             counter.fetch_add(1));
}

void make_directory(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return;
  throw Error(ErrorCode::kIo, cat("cannot create directory ", path.string(), ": ", std::strerror(errno)));
}

void make_directories_durably(const std::filesystem::path& path) {
  const std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  std::filesystem::path made;
  for (const auto& part : full) {
    if (part.empty()) continue;  // after a trailing slash
    const std::filesystem::path parent = made;
    made /= part;
    std::error_code error;
    if (!std::filesystem::is_directory(made, error)) {
      make_directory(made);
      fsync_directory(parent.string());
    }
  }
}

AtomicDirectory::AtomicDirectory(std::filesystem::path temporary) : path_(std::move(temporary)) {
  make_directory(path_);
}

AtomicDirectory::~AtomicDirectory() {
  if (committed_ || stays_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool AtomicDirectory::commit(const std::filesystem::path& target, bool* durable) {
  const bool can_sync = fsync_directory(path_.string());
  if (durable != nullptr) *durable = can_sync;
  committed_ = rename_durably_if_absent(path_.string(), target.string());
  return committed_;
}

}  // namespace ms::core
