// Checksums, for accidents and not for attackers: XXH3-64 (libxxhash) at memcpy speed for our own files, CRC-32C for
// formats that want it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ms::kernels {

// Hash of size_bytes at data (may be null when size_bytes is 0), seed 0: a seeded XXH3 derives a secret per call.
uint64_t xxh3(const void* data, size_t size_bytes);

// Of each of so many pieces of piece_bytes, one behind the other; hashes: room for them. Faster than one call for each
// where they are small.
void xxh3_each(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes);

// The same of bytes that come in pieces.
class Xxh3 {
 public:
  Xxh3();
  void update(const void* data, size_t size_bytes);
  uint64_t digest() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

// CRC-32C (Castagnoli; RFC 3720, B.4), a byte at a time: for small records.
uint32_t crc32c(const void* data, size_t size_bytes);

}  // namespace ms::kernels
