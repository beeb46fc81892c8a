// Where the chunks of a compressed box lie: an entry for each in the dataset /chunk_index of its rank file, so that a
// reader needs no HDF5 library (FORMAT.md, section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "core/io/file.h"

namespace ms::ckpt {

struct ChunkEntry {
  int64_t at = 0;     // of the stored bytes in the file
  int64_t bytes = 0;  // stored; those of the whole chunk: as it is, not a frame
  uint64_t xxh3 = 0;  // of the stored bytes
};
static_assert(sizeof(ChunkEntry) == 24);

// Bytes of a whole chunk of this box; its last chunk is filled up with zeros.
inline constexpr int64_t full_chunk_bytes(int64_t box_bytes) {
  return box_bytes < kChunkBytes ? box_bytes : kChunkBytes;
}

// The entries of box `box`, which is compressed. Throws kCorruptData if they do not lie in the file.
std::vector<ChunkEntry> read_chunk_index(const core::File& file, const Manifest& manifest, size_t box);

// Throws kCorruptData if these bytes, read from the entry's place in the file of this path, are not those it speaks of.
void check_stored(const std::string& path, const ChunkEntry& entry, std::span<const std::byte> stored);

// The values of a chunk, full_chunk_bytes, to `out`. Throws kCorruptData if they are no chunk of elements of `item`
// bytes; the caller compares with the hash of the values.
void decode_stored(std::span<const std::byte> stored, int item, std::span<std::byte> out);

}  // namespace ms::ckpt
