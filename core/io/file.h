// A file descriptor that is owned, positioned I/O that is complete or throws, and a file that appears whole or not at
// all.
//
// Every error names the path. EINTR and short reads and writes are dealt with here.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ms::core {

// The calls by which a sick disk shows, so that a test can make them fail; each returns as its system call does, errno
// set. The base class is the real thing. One per process: the trainer's ranks have one disk each.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual ssize_t pwrite(int fd, const void* data, size_t size_bytes, int64_t offset);
  virtual ssize_t write(int fd, const void* data, size_t size_bytes);
  // What io_uring says of a write of size_bytes: the bytes written or -errno. The base class passes it on.
  virtual int ring_result(int result, size_t size_bytes);
  virtual int fsync(int fd);
  virtual int fallocate(int fd, int64_t size_bytes);  // from 0; returns an error number, not -1
  virtual int rename(const char* from, const char* to, bool replace);
  virtual int link(const char* from, const char* to);  // from: may be a symbolic link, which is followed
};
// Only tests call this; nullptr restores the real calls. `ops` is not owned.
void set_file_ops_for_test(FileOps* ops);
// Those in force; for the code of core/io.
FileOps& file_ops();

class File {
 public:
  File() = default;
  // An existing regular file; a link is followed, but see confine_reads. Never waits, as a FIFO would make it. Throws
  // kNotFound, kIo (also for a folder, a FIFO, a socket, a device or a loop of links), and kCorruptData for a link out
  // of a confined folder.
  static File open_read(const std::string& path);
  // An existing file, read and write, content kept. Throws as open_read.
  static File open_write(const std::string& path);
  // An existing file, for writing past the page cache; not open if the file system has no O_DIRECT. Throws as
  // open_read.
  static File open_direct(const std::string& path);
  // A new or emptied file, read and write, mode 0644.
  static File create(const std::string& path);
  // For append() alone: an existing file of any kind (also a pipe or a terminal), or a new one. Throws kIo, kNotFound.
  static File open_append(const std::string& path);

  File(File&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  int64_t size_bytes() const;

  // All of `out` from `offset`; throws kIo, and kCorruptData if the file ends before. Safe from several threads.
  void pread(std::span<std::byte> out, int64_t offset) const;
  // All of `bytes` to `offset`; throws kIo. Safe from several threads on disjoint ranges.
  void pwrite(std::span<const std::byte> bytes, int64_t offset) const;
  // All of `bytes` behind what is there; throws kIo.
  void append(std::span<const std::byte> bytes) const;
  // Reserves the bytes, so that a full disk shows now; throws kIo. A file system that cannot is left alone.
  void preallocate(int64_t size_bytes) const;
  // Asks the kernel to begin writing these bytes to the disk now, so that fsync has less left to do. Only a hint.
  void start_writeback(int64_t offset, int64_t size_bytes) const;
  // A further name for this file, whatever its own is or has become: false where that cannot be (it has none left, the
  // name is taken, the file system has no hard links).
  bool link_to(const std::string& path) const;
  void fsync() const;  // final: after a failure the file must be written anew
  void close();        // throws kIo, unlike the destructor

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

// From now on no file below `folder` is opened for reading if its real path lies outside: a checkpoint that others made
// cannot have other files of this machine read. Who opens a checkpoint's folder calls this once; the readers below need
// not know. That `folder` itself is, or lies behind, a link does not matter. Allowed is also what the Hugging Face
// hub's cache does: links from snapshots/REVISION to the blobs folder beside snapshots. The rule is one of the process,
// like unveil(2), and never taken back. Thread-safe.
void confine_reads(const std::string& folder);

// Throws what File::open_read would for this path: before other libraries open it.
void check_readable(const std::string& path);

// The whole file as text; throws as File::open_read, and kCorruptData if it is larger than max_bytes.
std::string read_text(const std::string& path, int64_t max_bytes);

// Writes `text` beside `path`, fsyncs, renames over it, fsyncs the directory: readers see the old or the new, never a
// part.
void write_text_atomically(const std::string& path, std::string_view text);

// rename(2) alone. Throws kIo.
void rename_file(const std::string& from, const std::string& to);

// rename(2), then fsync of the directory that holds `to`.
void rename_durably(const std::string& from, const std::string& to);

// rename(2) that refuses to replace: false, and nothing done, if `to` exists. Then fsync as above.
bool rename_durably_if_absent(const std::string& from, const std::string& to);

// Bytes an unprivileged writer can still add to the file system that holds `directory`.
int64_t available_bytes(const std::string& directory);

// fsync of a directory. False where the file system has no such thing (EINVAL on some network file systems).
bool fsync_directory(const std::string& path);

}  // namespace ms::core
