// Large writes to known places of one file, many under way at once, past the page cache where the system lets us.
//
// A checkpoint is written once and read much later: through the page cache it costs a copy and evicts what the training
// needs, and one write at a time leaves the disk idle in between (limits.md, storage: io_uring with O_DIRECT at depth
// 16 writes twice as fast as write(2) and sync). Three ways, by what the machine allows:
//
//   io_uring  O_DIRECT where the file system has it, 16 requests of 4 MiB in the kernel's queue
//   direct    O_DIRECT, 4 threads of pwrite(2): containers often forbid io_uring
//   buffered  pwrite(2) through the page cache, write-back begun at once: where there is no O_DIRECT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/io/file.h"

namespace ms::core {

enum class WritePath : uint8_t { kIoUring, kDirect, kBuffered };
std::string_view write_path_name(WritePath path);  // "io_uring", "direct", "buffered"
// nullopt for "auto"; throws kInvalidArgument for anything but that and the three names.
std::optional<WritePath> parse_write_path(std::string_view name);

struct WritePathChoice {
  WritePath path = WritePath::kBuffered;
  std::string
      why;  // "io_uring with O_DIRECT", "buffered: io_uring: Operation not permitted; O_DIRECT: Invalid argument"
};
// Names of the small files by which that is found out; one that is left is of a process that was killed.
inline constexpr const char* kProbePrefix = ".msuite.probe-";

// What files in `directory` are written by, found by writing a small file there: the first that works, or `forced`.
// Throws kUnsupported if the forced one does not work there, kIo if nothing can be written.
WritePathChoice choose_write_path(const std::string& directory, std::optional<WritePath> forced = {});

// Memory for writes that need no copy on their way to O_DIRECT begins at a multiple of this, like their offset.
inline constexpr int64_t kDirectAlignment = 4096;

namespace detail {
class BulkEngine;
}

class BulkWriter {
 public:
  // The requests of one caller, waited for together.
  class Batch {
   public:
    explicit Batch(BulkWriter& writer) : writer_(writer) {}
    ~Batch();  // waits; an error is lost
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    friend class BulkWriter;
    friend class detail::BulkEngine;
    BulkWriter& writer_;
    int pending_ = 0;  // requests under way; guarded by the engine
    int error_ = 0;    // errno of the first that failed
  };

  // file: open for writing, of its final size, outlives this object. bytes_per_second: 0 is no limit.
  BulkWriter(const File& file, WritePath path, int64_t bytes_per_second = 0);
  ~BulkWriter();
  BulkWriter(const BulkWriter&) = delete;
  BulkWriter& operator=(const BulkWriter&) = delete;

  // Begins to write bytes to `offset`; they must stay until wait(batch) has returned. Blocks while the queue is full.
  // Thread-safe on disjoint ranges, as wait() is. Throws kIo for what is written at once (ends that are not aligned).
  void submit(std::span<const std::byte> bytes, int64_t offset, Batch& batch);
  // Until all of the batch is written: handed to the disk, not durable before fsync. Throws kIo.
  void wait(Batch& batch);

 private:
  void pace(int64_t bytes);  // sleeps until so many more are due
  const File& file_;
  int64_t bytes_per_second_;
  std::unique_ptr<detail::BulkEngine> engine_;
  struct RateLimit;
  std::unique_ptr<RateLimit> rate_;
};

}  // namespace ms::core
