#include "core/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "core/error.h"

namespace ms::core {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  throw Error(absent ? ErrorCode::kNotFound : ErrorCode::kIo,
              cat("cannot ", what, " ", path, ": ", std::strerror(error)));
}

// A name that no file system resolves is as wrong as an absent one.
[[noreturn]] void fail_to_find(const std::string& path, int error) {
  if (error != ELOOP && error != ENAMETOOLONG) fail("open", path, error);
  throw Error(ErrorCode::kInvalidArgument, cat("cannot open ", path, ": ", std::strerror(error)));
}

int open_retrying(const std::string& path, int flags) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void refuse_irregular(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  throw Error(ErrorCode::kInvalidArgument,
              cat("cannot read ", path, ": it is ", kind_of(status.st_mode), ", not a regular file"));
}

// The folders passed to confine_reads, as absolute paths with links unresolved.
class Confined {
 public:
  void add(const std::string& folder) {
    std::lock_guard lock(mutex_);
    folders_.insert(spelling(folder));
  }
  // The innermost confined folder that contains the path textually; "" if none does.
  std::string holding(const std::string& path) const {
    std::lock_guard lock(mutex_);
    if (folders_.empty()) return "";
    for (fs::path above = fs::path(spelling(path)).parent_path();; above = above.parent_path()) {
      if (folders_.contains(above.string())) return above.string();
      if (above == above.parent_path()) return "";
    }
  }

 private:
  static std::string spelling(const std::string& path) {
    fs::path plain = (path.empty() ? fs::current_path() : fs::absolute(path)).lexically_normal();
    if (!plain.has_filename()) plain = plain.parent_path();  // "a/" is a
    return plain.string();
  }
  mutable std::mutex mutex_;
  std::set<std::string> folders_;
};

Confined& confined() {
  static Confined all;
  return all;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

void refuse_link_out(const std::string& path) {
  const std::string folder = confined().holding(path);
  if (folder.empty()) return;
  const fs::path real = fs::canonical(path), home = fs::canonical(folder);
  if (lies_in(real, home)) return;
  const fs::path revisions = home.parent_path();
  if (revisions.filename() == "snapshots" && lies_in(real, revisions.parent_path() / "blobs")) return;
  throw Error(ErrorCode::kCorruptData, cat(path, " is a link out of the folder ", folder, ", to ", real.string(),
                                           "; such a link is not followed: put the file itself there"));
}

std::atomic<FileOps*> test_ops{nullptr};

std::string directory_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

ssize_t FileOps::pwrite(int fd, const void* data, size_t size_bytes, int64_t offset) {
  return ::pwrite(fd, data, size_bytes, offset);
}

ssize_t FileOps::write(int fd, const void* data, size_t size_bytes) { return ::write(fd, data, size_bytes); }

int FileOps::ring_result(int result, size_t /*size_bytes*/) { return result; }

int FileOps::fsync(int fd) { return ::fsync(fd); }

int FileOps::fallocate(int fd, int64_t size_bytes) { return ::posix_fallocate(fd, 0, size_bytes); }

int FileOps::rename(const char* from, const char* to, bool replace) {
  if (replace) return ::rename(from, to);
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  if (::access(to, F_OK) == 0) {  // without the flag: nearly as safe, the lock file excludes other writers
    errno = EEXIST;
    return -1;
  }
  return ::rename(from, to);
}

int FileOps::link(const char* from, const char* to) {
  return ::linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
}

void set_file_ops_for_test(FileOps* ops) { test_ops = ops; }

FileOps& file_ops() {
  static FileOps real;
  FileOps* ops = test_ops.load();
  return ops != nullptr ? *ops : real;
}

void confine_reads(const std::string& folder) { confined().add(folder); }

void check_readable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) fail_to_find(path, errno);
  refuse_irregular(path, status);  // before opening, which may act on a device
  refuse_link_out(path);
}

File File::open_read(const std::string& path) {
  check_readable(path);
  const int fd = open_retrying(path, O_RDONLY | O_NONBLOCK);  // in case it has become a FIFO since
  if (fd < 0) fail("open", path, errno);
  File file(fd, path);
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail("stat", path, errno);
  refuse_irregular(path, status);
  return file;
}

File File::open_write(const std::string& path) {
  const int fd = open_retrying(path, O_RDWR);
  if (fd < 0) fail("open", path, errno);
  return File(fd, path);
}

File File::open_direct(const std::string& path) {
  const int fd = open_retrying(path, O_WRONLY | O_DIRECT);
  if (fd < 0 && errno == EINVAL) return File();
  if (fd < 0) fail("open", path, errno);
  return File(fd, path);
}

File File::create(const std::string& path) {
  const int fd = open_retrying(path, O_RDWR | O_CREAT | O_TRUNC);
  if (fd < 0) fail("create", path, errno);
  return File(fd, path);
}

File File::open_append(const std::string& path) {
  const int fd = open_retrying(path, O_WRONLY | O_APPEND | O_CREAT);
  if (fd < 0) fail("open", path, errno);
  return File(fd, path);
}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

int64_t File::size_bytes() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("stat", path_, errno);
  return status.st_size;
}

void File::pread(std::span<std::byte> out, int64_t offset) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd_, out.data() + done, out.size() - done, offset + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path_, errno);
    if (n == 0) {
      throw Error(ErrorCode::kCorruptData,
                  cat(path_, " ends at byte ", offset + static_cast<int64_t>(done), ", expected ", out.size(),
                      " bytes from ", offset, ". Was it truncated while in use?"));
    }
    done += static_cast<size_t>(n);
  }
}

void File::pwrite(std::span<const std::byte> bytes, int64_t offset) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        file_ops().pwrite(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", path_, n < 0 ? errno : EIO);
    done += static_cast<size_t>(n);
  }
}

void File::append(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = file_ops().write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", path_, n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void File::preallocate(int64_t size_bytes) const {
  if (size_bytes <= 0) return;
  int error = 0;
  do {
    error = file_ops().fallocate(fd_, size_bytes);
  } while (error == EINTR);
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL) fail("reserve space for", path_, error);
}

void File::start_writeback(int64_t offset, int64_t size_bytes) const {
  // A file system without support returns EINVAL or ESPIPE; a disk error is reported again by fsync.
  (void)::sync_file_range(fd_, offset, size_bytes, SYNC_FILE_RANGE_WRITE);
}

bool File::link_to(const std::string& path) const {
  return file_ops().link(cat("/proc/self/fd/", fd_).c_str(), path.c_str()) == 0;
}

void File::fsync() const {
  if (file_ops().fsync(fd_) != 0) fail("fsync", path_, errno);
}

void File::close() {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 && errno != EINTR) fail("close", path_, errno);
}

std::string read_text(const std::string& path, int64_t max_bytes) {
  const File file = File::open_read(path);
  const int64_t size = file.size_bytes();
  if (size > max_bytes) {
    throw Error(ErrorCode::kCorruptData, cat(path, " has ", size, " bytes; expected at most ", max_bytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.pread(std::as_writable_bytes(std::span(text)), 0);
  return text;
}

void write_text_atomically(const std::string& path, std::string_view text) {
  const std::string temporary = cat(path, ".tmp-", ::getpid());
  try {
    File file = File::create(temporary);
    file.pwrite(std::as_bytes(std::span(text)), 0);
    file.fsync();
    file.close();
    rename_durably(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void rename_file(const std::string& from, const std::string& to) {
  if (file_ops().rename(from.c_str(), to.c_str(), true) != 0) fail("rename", cat(from, " to ", to), errno);
}

void rename_durably(const std::string& from, const std::string& to) {
  rename_file(from, to);
  fsync_directory(directory_of(to));
}

bool rename_durably_if_absent(const std::string& from, const std::string& to) {
  if (file_ops().rename(from.c_str(), to.c_str(), false) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) return false;
    fail("rename", cat(from, " to ", to), errno);
  }
  fsync_directory(directory_of(to));
  return true;
}

int64_t available_bytes(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) fail("stat the file system of", directory, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

bool fsync_directory(const std::string& path) {
  const int fd = open_retrying(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) fail("open", path, errno);
  const int error = file_ops().fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0 && error != EINVAL) fail("fsync", path, error);
  return error == 0;
}

}  // namespace ms::core
