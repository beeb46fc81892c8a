// Preloaded (LD_PRELOAD) into a program, appends to MS_RECORD_LOG every successful call that changes something under
// the folder MS_RECORD_FOLDER, in the order in which they took effect: threads and processes that share the log are
// serialised.
//
// Not recorded, because our code does not use them there: writes through io_uring or a mapping, and stdio files.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "tests/faults/recorded_calls.h"

namespace {

using ms::test::CallKind;
using ms::test::RecordHead;

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

struct Recorder {
  std::string folder;
  int log = -1;
  std::mutex mutex;
  Recorder() {
    const char* where = ::getenv("MS_RECORD_FOLDER");
    const char* file = ::getenv("MS_RECORD_LOG");
    if (where == nullptr || file == nullptr) return;
    folder = where;
    log = real<int(const char*, int, ...)>("open")(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  }
};

Recorder& recorder() {
  static auto* the = new Recorder;  // never destroyed: calls are recorded until the process ends
  return *the;
}

// While it exists, no other thread or process changes the folder.
class Turn {
 public:
  Turn() : lock_(recorder().mutex) { ::flock(recorder().log, LOCK_EX); }
  ~Turn() {
    const int error = errno;
    ::flock(recorder().log, LOCK_UN);
    errno = error;
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

void record(CallKind kind, const std::string& path, const std::string& other = "", int64_t offset = 0, int64_t size = 0,
            const void* data = nullptr, size_t data_bytes = 0) {
  const int error = errno;
  RecordHead head{kind,
                  static_cast<uint32_t>(path.size()),
                  static_cast<uint32_t>(other.size()),
                  static_cast<uint32_t>(data_bytes),
                  offset,
                  size};
  std::string record(reinterpret_cast<const char*>(&head), sizeof head);
  record += path;
  record += other;
  record.append(static_cast<const char*>(data == nullptr ? "" : data), data_bytes);
  static const auto write_log = real<ssize_t(int, const void*, size_t)>("write");
  if (write_log(recorder().log, record.data(), record.size()) != static_cast<ssize_t>(record.size())) ::abort();
  errno = error;
}

std::string path_of(int fd) {
  char text[4096];
  char name[64];
  ::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(name, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

// The path within the folder; empty for paths outside.
std::string within(const std::string& path) {
  const std::string& folder = recorder().folder;
  if (recorder().log < 0 || path.compare(0, folder.size() + 1, folder + "/") != 0) {
    return path == folder && recorder().log >= 0 ? "." : "";
  }
  if (path.size() > 10 && path.compare(path.size() - 10, 10, " (deleted)") == 0) return "";
  return path.substr(folder.size() + 1);
}

std::string within(int directory, const char* path) {
  if (recorder().log < 0) return "";
  std::string full = path;
  if (full.rfind("/proc/self/fd/", 0) == 0) return within(path_of(::atoi(path + 14)));
  if (full.empty() || full[0] != '/') {
    char here[4096];
    const std::string base = directory != AT_FDCWD ? path_of(directory) : ::getcwd(here, sizeof here) ? here : "";
    full = base + "/" + full;
  }
  std::string normal = std::filesystem::path(full).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return within(normal);
}
std::string within(int fd) { return recorder().log < 0 ? "" : within(path_of(fd)); }

template <class Body>
int opened(int directory, const char* path, int flags, const Body& body) {
  const std::string place = (flags & (O_CREAT | O_TRUNC)) != 0 ? within(directory, path) : "";
  if (place.empty()) return body();
  const Turn turn;
  struct stat status {};
  const bool was_there = ::fstatat(directory, path, &status, 0) == 0;
  const int fd = body();
  if (fd < 0) return fd;
  if (!was_there) record(CallKind::kCreate, place);
  if (was_there && (flags & O_TRUNC) != 0) record(CallKind::kResize, place);
  return fd;
}

// For calls that return 0 on success.
template <class Body>
int done(CallKind kind, const std::string& place, const std::string& other, int64_t size, const Body& body) {
  if (place.empty()) return body();
  const Turn turn;
  const int result = body();
  if (result == 0) record(kind, place, other, 0, size);
  return result;
}

template <class Body>
ssize_t written(int fd, const void* data, int64_t offset, const Body& body) {
  const std::string place = within(fd);
  if (place.empty()) return body();
  const Turn turn;
  if (offset < 0) offset = (::fcntl(fd, F_GETFL) & O_APPEND) != 0 ? ::lseek(fd, 0, SEEK_END) : ::lseek(fd, 0, SEEK_CUR);
  const ssize_t n = body();
  if (n > 0) record(CallKind::kWrite, place, "", offset, n, data, static_cast<size_t>(n));
  return n;
}

template <class Body>
int synced(int fd, const Body& body) {
  struct stat status {};
  ::fstat(fd, &status);
  return done(S_ISDIR(status.st_mode) ? CallKind::kSyncFolder : CallKind::kSyncFile, within(fd), "", 0, body);
}

}  // namespace

extern "C" {

#define MS_OPEN(name, arguments, directory, ...)                                                          \
  int name arguments {                                                                                    \
    mode_t mode = 0;                                                                                      \
    if ((flags & (O_CREAT | __O_TMPFILE)) != 0) {                                                         \
      va_list rest;                                                                                       \
      va_start(rest, flags);                                                                              \
      mode = va_arg(rest, mode_t);                                                                        \
      va_end(rest);                                                                                       \
    }                                                                                                     \
    return opened(directory, path, flags, [&] { return real<int arguments>(#name)(__VA_ARGS__, mode); }); \
  }
MS_OPEN(open, (const char* path, int flags, ...), AT_FDCWD, path, flags)
MS_OPEN(open64, (const char* path, int flags, ...), AT_FDCWD, path, flags)
MS_OPEN(openat, (int directory, const char* path, int flags, ...), directory, directory, path, flags)
MS_OPEN(openat64, (int directory, const char* path, int flags, ...), directory, directory, path, flags)

int creat(const char* path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

ssize_t write(int fd, const void* data, size_t size) {
  const auto body = [&] { return real<ssize_t(int, const void*, size_t)>("write")(fd, data, size); };
  if ((fd == 1 || fd == 2) && recorder().log >= 0) {
    const Turn turn;
    const ssize_t n = body();
    if (n > 0) record(CallKind::kSaid, "", "", 0, 0, data, static_cast<size_t>(n));
    return n;
  }
  return written(fd, data, -1, body);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return written(fd, data, offset,
                 [&] { return real<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, size, offset); });
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }

int ftruncate(int fd, off_t size) noexcept {
  return done(CallKind::kResize, within(fd), "", size, [&] { return real<int(int, off_t)>("ftruncate")(fd, size); });
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }
int truncate(const char* path, off_t size) noexcept {
  return done(CallKind::kResize, within(AT_FDCWD, path), "", size,
              [&] { return real<int(const char*, off_t)>("truncate")(path, size); });
}
int truncate64(const char* path, off64_t size) noexcept { return truncate(path, size); }
int posix_fallocate(int fd, off_t offset, off_t size) {
  return done(CallKind::kExtend, within(fd), "", offset + size,
              [&] { return real<int(int, off_t, off_t)>("posix_fallocate")(fd, offset, size); });
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) { return posix_fallocate(fd, offset, size); }

int fsync(int fd) {
  return synced(fd, [&] { return real<int(int)>("fsync")(fd); });
}
int fdatasync(int fd) {
  return synced(fd, [&] { return real<int(int)>("fdatasync")(fd); });
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  return done(CallKind::kRename, within(from_directory, from), within(to_directory, to), 0, [&] {
    return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_directory, from, to_directory, to,
                                                                                flags);
  });
}
int renameat(int from_directory, const char* from, int to_directory, const char* to) noexcept {
  return renameat2(from_directory, from, to_directory, to, 0);
}
int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) noexcept {
  return done(CallKind::kLink, within(from_directory, from), within(to_directory, to), 0, [&] {
    return real<int(int, const char*, int, const char*, int)>("linkat")(from_directory, from, to_directory, to, flags);
  });
}
int link(const char* from, const char* to) noexcept { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int directory, const char* path, int flags) noexcept {
  const CallKind kind = (flags & AT_REMOVEDIR) != 0 ? CallKind::kRemoveFolder : CallKind::kRemoveFile;
  return done(kind, within(directory, path), "", 0,
              [&] { return real<int(int, const char*, int)>("unlinkat")(directory, path, flags); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int error = errno;
  if (unlink(path) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return -1;
  errno = error;
  return rmdir(path);
}

int mkdirat(int directory, const char* path, mode_t mode) noexcept {
  return done(CallKind::kMakeFolder, within(directory, path), "", 0,
              [&] { return real<int(int, const char*, mode_t)>("mkdirat")(directory, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

}  // extern "C"
