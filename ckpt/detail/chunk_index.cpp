#include "ckpt/detail/chunk_index.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/chunk_codec.h"
#include "core/io/json.h"
#include "kernels/checksum.h"

namespace ms::ckpt {

using core::cat;
using core::Error;
using core::ErrorCode;

std::vector<ChunkEntry> read_chunk_index(const core::File& file, const Manifest& manifest, size_t box) {
  const int64_t size = manifest.boxes.size_bytes(box), file_bytes = manifest.file_of(box).bytes;
  std::vector<ChunkEntry> entries(static_cast<size_t>(chunks_in(size)));
  file.pread(std::as_writable_bytes(std::span(entries)), manifest.places[box].at);
  for (size_t i = 0; i < entries.size(); ++i) {
    const ChunkEntry& entry = entries[i];
    if (entry.bytes <= 0 || entry.bytes > full_chunk_bytes(size) || entry.at < 0 ||
        entry.at > file_bytes - entry.bytes) {
      throw Error(ErrorCode::kCorruptData,
                  cat(file.path(), ": /chunk_index says that chunk ", i, " of ", manifest.dataset_of(box), " has ",
                      entry.bytes, " bytes at ", entry.at, ", in a file of ", file_bytes));
    }
  }
  return entries;
}

void check_stored(const std::string& path, const ChunkEntry& entry, std::span<const std::byte> stored) {
  const uint64_t seen = kernels::xxh3(stored.data(), stored.size());
  if (seen == entry.xxh3) return;
  throw Error(ErrorCode::kCorruptData,
              cat(path, ": bytes ", entry.at, " to ", entry.at + entry.bytes, " hash to ", core::hex16(seen),
                  " but /chunk_index says ", core::hex16(entry.xxh3), ". The file is damaged."));
}

void decode_stored(std::span<const std::byte> stored, int item, std::span<std::byte> out) {
  if (stored.size() == out.size()) {
    std::copy(stored.begin(), stored.end(), out.begin());
  } else {
    core::decompress_chunk(stored, item, out);
  }
}

}  // namespace ms::ckpt
