// Writes large ranges of one file at known offsets, many requests at a time, past the page cache if possible.
//
// A checkpoint is written once and read much later. The page cache would cost a copy and evict memory that training
// needs, and with one write at a time the disk is idle in between: io_uring with O_DIRECT at depth 16 was measured at
// twice the speed of write(2) and sync (bench/core/request_sizes.py measures request sizes). Three methods, by what the
// machine allows:
//
//   io_uring  O_DIRECT if the file system has it, 16 requests of 4 MiB in the kernel's queue
//   direct    O_DIRECT, 4 threads of pwrite(2); containers often forbid io_uring
//   buffered  pwrite(2) through the page cache, write-back started at once; without O_DIRECT
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
// nullopt for "auto"; throws kInvalidArgument for anything else that is not one of the three names.
std::optional<WritePath> parse_write_path(std::string_view name);

struct WritePathChoice {
  WritePath path = WritePath::kBuffered;
  std::string
      why;  // "io_uring with O_DIRECT", "buffered: io_uring: Operation not permitted; O_DIRECT: Invalid argument"
};
// Prefix of the probe files of choose_write_path; a process that was killed may leave one.
inline constexpr const char* kProbePrefix = ".msuite.probe-";

// Chooses the method for files in `directory` by writing a small file there: the first that works, or `forced`. Throws
// kUnsupported if the forced one does not work there, kIo if nothing can be written.
WritePathChoice choose_write_path(const std::string& directory, std::optional<WritePath> forced = {});

// Alignment of memory and offset for writes that reach O_DIRECT without a copy.
inline constexpr int64_t kDirectAlignment = 4096;

namespace detail {
class BulkEngine;
}

class BulkWriter {
 public:
  // Requests of one caller that are waited for together.
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
    int pending_ = 0;  // running requests; guarded by the engine
    int error_ = 0;    // errno of the first failed request
  };

  // file: open for writing, has its final size, outlives this object. bytes_per_second: 0 means no limit.
  BulkWriter(const File& file, WritePath path, int64_t bytes_per_second = 0);
  ~BulkWriter();
  BulkWriter(const BulkWriter&) = delete;
  BulkWriter& operator=(const BulkWriter&) = delete;

  // Starts writing bytes at `offset`; they must stay valid until wait(batch) returns. Blocks while the queue is full.
  // Thread-safe on disjoint ranges, like wait(). Throws kIo for parts that are written at once (unaligned ends).
  void submit(std::span<const std::byte> bytes, int64_t offset, Batch& batch);
  // Waits until the whole batch is written: handed to the disk, not durable before fsync. Throws kIo.
  void wait(Batch& batch);

 private:
  void pace(int64_t bytes);  // sleeps until this many more bytes are due
  const File& file_;
  int64_t bytes_per_second_;
  std::unique_ptr<detail::BulkEngine> engine_;
  struct RateLimit;
  std::unique_ptr<RateLimit> rate_;
};

}  // namespace ms::core
