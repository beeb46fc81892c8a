// Where the chunks of a compressed box lie: an entry for each in the dataset /chunk_index of its rank file, so that a
// reader needs no HDF5 library (FORMAT.md, section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// Reads and decodes chunk `chunk`: full_chunk_bytes to `out`. stored: scratch. Throws kCorruptData naming what is wrong
// with the stored bytes; the caller compares with the hash of the values.
void read_stored_chunk(const core::File& file, const ChunkEntry& entry, int item, std::vector<std::byte>& stored,
                       std::span<std::byte> out);

}  // namespace ms::ckpt
