// An owning file descriptor, positioned I/O that completes or throws, and files that appear complete or not at all.
//
// Every error names the path. EINTR and short reads and writes are handled here.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ms::core {

// The system calls at which a failing disk shows, virtual so that tests can inject errors. Each returns what its system
// call returns and sets errno. The base class makes the real calls. One per process: a rank's files are on one disk.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual ssize_t pwrite(int fd, const void* data, size_t size_bytes, int64_t offset);
  virtual ssize_t write(int fd, const void* data, size_t size_bytes);
  // Result of an io_uring write of size_bytes: bytes written, or -errno. The base class returns it unchanged.
  virtual int ring_result(int result, size_t size_bytes);
  virtual int fsync(int fd);
  virtual int fallocate(int fd, int64_t size_bytes);  // from 0; returns an error number, not -1
  virtual int rename(const char* from, const char* to, bool replace);
  virtual int link(const char* from, const char* to);  // from may be a symbolic link, which is followed
};
// For tests only; nullptr restores the real calls. `ops` is not owned.
void set_file_ops_for_test(FileOps* ops);
// The calls in use; for the code of core/io.
FileOps& file_ops();

class File {
 public:
  File() = default;
  // Opens an existing regular file. Links are followed, within the limits of confine_reads. Never blocks, as a FIFO
  // would. Throws kNotFound, kInvalidArgument for a name that leads to no regular file (a folder, a FIFO, a socket, a
  // device, a loop of links, a name longer than a system takes), kIo, and kCorruptData for a link out of a confined
  // folder.
  static File open_read(const std::string& path);
  // An existing file for reading and writing; contents are kept. Throws kNotFound, kIo.
  static File open_write(const std::string& path);
  // An existing file, for writing past the page cache; the result is not open if the file system has no O_DIRECT.
  // Throws kNotFound, kIo.
  static File open_direct(const std::string& path);
  // A new or truncated file for reading and writing, mode 0644.
  static File create(const std::string& path);
  // For append() only: an existing file of any kind (also a pipe or a terminal), or a new one. Throws kIo, kNotFound.
  static File open_append(const std::string& path);

  File(File&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  int64_t size_bytes() const;

  // Fills `out` from `offset`; throws kIo, and kCorruptData if the file is too short. Thread-safe.
  void pread(std::span<std::byte> out, int64_t offset) const;
  // Writes all of `bytes` at `offset`; throws kIo. Thread-safe on disjoint ranges.
  void pwrite(std::span<const std::byte> bytes, int64_t offset) const;
  // Writes all of `bytes` at the end of the file; throws kIo.
  void append(std::span<const std::byte> bytes) const;
  // Reserves space, so that a full disk is reported now; throws kIo. Does nothing if the file system does not support
  // it.
  void preallocate(int64_t size_bytes) const;
  // Hints the kernel to start writing these bytes to the disk, so that fsync has less left to do.
  void start_writeback(int64_t offset, int64_t size_bytes) const;
  // Adds a hard link at `path`, whatever the file's own name is or has become. Returns false if that is impossible: the
  // file has no name left, `path` exists, or the file system has no hard links.
  bool link_to(const std::string& path) const;
  void fsync() const;  // after a failure the file must be rewritten
  void close();        // throws kIo, unlike the destructor

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// After this call, no file below `folder` is opened for reading if its real path is outside: a checkpoint made by
// others must not make us read other files of this machine. Call it once when a checkpoint's folder is opened; the
// readers below need not know. `folder` itself may be, or be reached through, a link. Links of the Hugging Face hub's
// cache, from snapshots/REVISION to the blobs folder beside snapshots, are allowed. Applies to the whole process, like
// unveil(2), and is never undone. Thread-safe.
void confine_reads(const std::string& folder);

// Throws what File::open_read would throw for this path; call it before another library opens the file.
void check_readable(const std::string& path);

// Reads the whole file as text; throws like File::open_read, and kCorruptData if it is larger than max_bytes.
std::string read_text(const std::string& path, int64_t max_bytes);

// Writes `text` to a file beside `path`, fsyncs it, renames it to `path` and fsyncs the directory: readers see the old
// or the new text, never a part.
void write_text_atomically(const std::string& path, std::string_view text);

// rename(2) without fsync. Throws kIo.
void rename_file(const std::string& from, const std::string& to);

// rename(2), then fsync of the directory that contains `to`.
void rename_durably(const std::string& from, const std::string& to);

// rename(2) that does not replace: returns false and does nothing if `to` exists. Then fsyncs like rename_durably.
bool rename_durably_if_absent(const std::string& from, const std::string& to);

// Bytes that an unprivileged process can still write to the file system of `directory`.
int64_t available_bytes(const std::string& directory);

// fsync of a directory. Returns false if the file system does not support it (EINVAL on some network file systems).
bool fsync_directory(const std::string& path);

}  // namespace ms::core
