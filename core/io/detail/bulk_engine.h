// How the requests of a BulkWriter are executed. One engine per file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/io/bulk_writer.h"
#include "core/io/file.h"

namespace ms::core::detail {

// The most that a device takes per request, from huge pages; bench/core/request_sizes.py measures the cost of small
// pages.
inline constexpr int64_t kRequestBytes = int64_t{4} << 20;
inline constexpr int64_t kCopiedBytes = int64_t{1} << 20;  // of a request whose data is not aligned
inline constexpr int kRequests = 16;                       // running at once

class BulkEngine {
 public:
  virtual ~BulkEngine() = default;
  // At most kRequestBytes, or kCopiedBytes of unaligned data; offset and size are multiples of kDirectAlignment. Counts
  // the request in the batch.
  virtual void submit(std::span<const std::byte> bytes, int64_t offset, BulkWriter::Batch& batch) = 0;
  // Waits until nothing of the batch is pending.
  virtual void wait(BulkWriter::Batch& batch) = 0;

 protected:
  static int& pending(BulkWriter::Batch& batch) { return batch.pending_; }
  static int& error(BulkWriter::Batch& batch) { return batch.error_; }
};

// A page-aligned block of kCopiedBytes, to copy unaligned data to.
class AlignedBlock {
 public:
  AlignedBlock();  // throws kOutOfMemory
  ~AlignedBlock();
  AlignedBlock(const AlignedBlock&) = delete;
  AlignedBlock& operator=(const AlignedBlock&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};
inline bool is_aligned(const std::byte* data) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kDirectAlignment) == 0;
}

// Throws kUnsupported with the reason (system call and errno) if the kernel or the file system does not support it.
std::unique_ptr<BulkEngine> make_uring_engine(const File& file);
std::unique_ptr<BulkEngine> make_direct_engine(const File& file);
std::unique_ptr<BulkEngine> make_buffered_engine(const File& file);

}  // namespace ms::core::detail
