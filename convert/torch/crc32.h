// The CRC-32 of ZIP archives, zlib's: of bytes in order, or of the parts of a whole that come in any order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ms::convert {

// Of what has the CRC `before` (0: nothing) and these bytes behind it.
uint32_t crc32(uint32_t before, std::span<const std::byte> bytes);

// A CRC is linear in the bits: it is the sum of what each part gives alone, moved by the bytes behind it. So parts are
// added by place, by any thread, and bytes that never come count as zeros: those of a hole in a file.
// Source: Ross Williams, A Painless Guide to CRC Error Detection Algorithms (1993), for the polynomial arithmetic.
class Crc32OfParts {
 public:
  explicit Crc32OfParts(int64_t size_bytes) : size_bytes_(size_bytes) {}
  // The bytes [offset, offset + bytes.size()) of the whole; each byte at most once. Thread-safe.
  void add(int64_t offset, std::span<const std::byte> bytes);
  uint32_t value() const;

 private:
  int64_t size_bytes_;
  std::atomic<uint32_t> sum_{0};
};

}  // namespace ms::convert
