// Checksums against accidental corruption, not attackers: XXH3-64 (libxxhash) at memcpy speed for our own files,
// CRC-32C for formats that require it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ms::kernels {

// Hash of size_bytes at data (may be null when size_bytes is 0), seed 0; a seeded XXH3 derives a secret at each call.
uint64_t xxh3(const void* data, size_t size_bytes);

// Hashes `pieces` consecutive pieces of piece_bytes each into hashes[pieces]. For small pieces this is faster than one
// call per piece.
void xxh3_each(const void* data, size_t piece_bytes, size_t pieces, uint64_t* hashes);

// XXH3-64 of data that arrives in pieces.
class Xxh3 {
 public:
  Xxh3();
  void update(const void* data, size_t size_bytes);
  uint64_t digest() const;

 private:
  alignas(64) std::array<std::byte, 576> state_;
};

// CRC-32C (Castagnoli; RFC 3720, B.4), one byte at a time: for small records.
uint32_t crc32c(const void* data, size_t size_bytes);

}  // namespace ms::kernels
