// A file mapped read-only. Truncating a file while it is mapped raises SIGBUS, as with any mmap.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace ms::train::detail {

class MappedFile {
 public:
  // Throws kNotFound, kIo. An empty file maps to an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace ms::train::detail
