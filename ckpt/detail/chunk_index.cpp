#include "ckpt/detail/chunk_index.h"

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

void read_stored_chunk(const core::File& file, const ChunkEntry& entry, int item, std::vector<std::byte>& stored,
                       std::span<std::byte> out) {
  const bool raw = entry.bytes == static_cast<int64_t>(out.size());
  if (!raw) stored.resize(static_cast<size_t>(entry.bytes));
  const std::span<std::byte> bytes = raw ? out : std::span(stored);
  file.pread(bytes, entry.at);
  if (const uint64_t seen = kernels::xxh3(bytes.data(), bytes.size()); seen != entry.xxh3) {
    throw Error(ErrorCode::kCorruptData,
                cat(file.path(), ": bytes ", entry.at, " to ", entry.at + entry.bytes, " hash to ", core::hex16(seen),
                    " but /chunk_index says ", core::hex16(entry.xxh3), ". The file is damaged."));
  }
  if (!raw) core::decompress_chunk(bytes, item, out);
}

}  // namespace ms::ckpt
