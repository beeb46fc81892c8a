// Reads large ranges of large files past the page cache if the file system allows it; other reads go through it.
//
// A conversion reads each byte once. The page cache would add a copy, evict pages that others need, and split requests
// into the small read-ahead of threads that share a descriptor. Ranges that are already cached are read from the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/io/file.h"

namespace ms::core {

class BulkReader {
 public:
  static constexpr int64_t kBufferBytes = int64_t{6} << 20;  // buffer that a thread keeps for read()

  BulkReader() = default;
  // Throws like File::open_read.
  explicit BulkReader(const std::string& path);

  const File& file() const { return cached_; }
  const std::string& path() const { return cached_.path(); }
  int64_t size_bytes() const { return cached_.size_bytes(); }

  // Like File::pread, thread-safe. If memory and offset are both multiples of 4 KiB, no copy is made.
  void read(std::span<std::byte> out, int64_t offset) const;

 private:
  bool is_resident(int64_t offset, size_t size_bytes) const;
  void read_copied(std::span<std::byte> out, int64_t offset) const;
  File cached_, direct_;  // direct_ is not open for small files, and without O_DIRECT
};

}  // namespace ms::core
