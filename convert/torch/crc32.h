// Computes the CRC-32 of ZIP archives (zlib's), of bytes in order or of parts that arrive in any order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ms::convert {

// Continues a CRC: returns the CRC of the data whose CRC is `before` (0: no data yet) followed by `bytes`.
uint32_t crc32(uint32_t before, std::span<const std::byte> bytes);

// Combines the CRCs of parts. A CRC is linear over bits: it is the sum of each part's own contribution, multiplied by a
// power of x for the bytes that follow it. Parts are therefore added by offset, by any thread; bytes that are never
// added count as zeros, as in a hole of a file.
// Source: Ross Williams, A Painless Guide to CRC Error Detection Algorithms (1993), for the polynomial arithmetic.
class Crc32OfParts {
 public:
  explicit Crc32OfParts(int64_t size_bytes) : size_bytes_(size_bytes) {}
  // Adds the bytes [offset, offset + bytes.size()) of the whole. Each byte may be added once at most. Thread-safe.
  void add(int64_t offset, std::span<const std::byte> bytes);
  uint32_t value() const;

 private:
  int64_t size_bytes_;
  std::atomic<uint32_t> sum_{0};
};

}  // namespace ms::convert
