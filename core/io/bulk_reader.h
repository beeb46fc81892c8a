// Large reads of a large file past the page cache where the file system lets us, others through it.
//
// A conversion reads each byte once: through the page cache that costs a copy, pages that push out what others need,
// and requests as small as the read-ahead of threads that share a descriptor makes them. What is in the page cache
// already is taken from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/io/file.h"

namespace ms::core {

class BulkReader {
 public:
  static constexpr int64_t kBufferBytes = int64_t{6} << 20;  // that a thread keeps for read()

  BulkReader() = default;
  // Throws as File::open_read.
  explicit BulkReader(const std::string& path);

  const File& file() const { return cached_; }
  const std::string& path() const { return cached_.path(); }
  int64_t size_bytes() const { return cached_.size_bytes(); }

  // As File::pread, thread-safe. Memory and offset that are both multiples of 4 KiB save a copy.
  void read(std::span<std::byte> out, int64_t offset) const;

 private:
  bool is_resident(int64_t offset, size_t size_bytes) const;
  void read_copied(std::span<std::byte> out, int64_t offset) const;
  File cached_, direct_;  // the second is not open for a small file, and where there is no O_DIRECT
};

}  // namespace ms::core
