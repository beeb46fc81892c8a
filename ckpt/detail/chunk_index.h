// Locations of the chunks of a compressed box: the dataset /chunk_index of its rank file has an entry for each, so that
// a reader does not need the HDF5 library (FORMAT.md, section 4).
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
  int64_t at = 0;     // offset of the stored bytes in the file
  int64_t bytes = 0;  // stored size; that of a whole chunk: stored uncompressed, not a zstd frame
  uint64_t xxh3 = 0;  // of the stored bytes
};
static_assert(sizeof(ChunkEntry) == 24);

// Uncompressed bytes of a whole chunk of this box; its last chunk is padded with zeros.
inline constexpr int64_t full_chunk_bytes(int64_t box_bytes) {
  return box_bytes < kChunkBytes ? box_bytes : kChunkBytes;
}

// The entries of the compressed box `box`. Throws kCorruptData if they lie outside the file.
std::vector<ChunkEntry> read_chunk_index(const core::File& file, const Manifest& manifest, size_t box);

// Throws kCorruptData if `stored`, read from the entry's location in the file at path, does not match the entry.
void check_stored(const std::string& path, const ChunkEntry& entry, std::span<const std::byte> stored);

// Decodes a chunk to `out`, full_chunk_bytes. Throws kCorruptData if `stored` is not a chunk of elements of `item`
// bytes; the caller checks the hash of the values.
void decode_stored(std::span<const std::byte> stored, int item, std::span<std::byte> out);

}  // namespace ms::ckpt
