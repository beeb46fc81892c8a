#include "ckpt/detail/staging.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ckpt/copy_box.h"
#include "ckpt/detail/rank_file.h"
#include "core/error.h"
#include "core/io/bulk_writer.h"
#include "kernels/rows.h"

namespace ms::ckpt {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Offset of each shard's copy, and the end of the last one.
std::vector<int64_t> offsets_of(std::span<const ShardData> shards) {
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const ShardData& shard : shards) {
    const int64_t size = bytes_of(shard.meta);
    offsets.push_back(round_up(end, size >= kPackedBelow ? core::kDirectAlignment : 64));
    end = offsets.back() + size;
  }
  offsets.push_back(end);
  return offsets;
}

}  // namespace

std::vector<ShardData> written_shards(std::span<const ShardData> shards) {
  std::vector<ShardData> written;
  for (const ShardData& shard : shards) {
    if (shard.meta.replica_id == 0 && bytes_of(shard.meta) > 0) written.push_back(shard);
  }
  return written;
}

std::vector<ShardData> cut_into_chunks(std::span<const ShardData> shards) {
  std::vector<ShardData> pieces;
  for (const ShardData& shard : shards) {
    const int64_t rows = shard.meta.local_shape.empty() ? 1 : shard.meta.local_shape[0];
    const int64_t row_bytes = bytes_of(shard.meta) / rows, step = std::max<int64_t>(1, kChunkBytes / row_bytes);
    if (step >= rows) {
      pieces.push_back(shard);
      continue;
    }
    for (int64_t row = 0; row < rows; row += step) {
      ShardData piece = shard;
      piece.meta.local_shape[0] = std::min(step, rows - row);
      piece.meta.global_offset[0] += row;
      piece.data += row * row_bytes;
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

Staging::~Staging() { unmap(); }

void Staging::unmap() {
  buffer_.release();
  if (mapping_ != nullptr) ::munmap(mapping_, static_cast<size_t>(mapped_bytes_));
  mapping_ = nullptr;
}

void Staging::reserve(std::span<const ShardData> shards, core::Arena& arena, core::ThreadPool* pool) {
  const int64_t bytes = offsets_of(shards).back();
  if (buffer_.size_bytes() >= bytes) return;
  unmap();
  if (descriptor_ < 0) {
    buffer_ = arena.allocate(bytes, core::MemoryTag::kCkpt);
  } else {
    void* place = MAP_FAILED;
    if (::ftruncate(descriptor_, bytes) == 0) {
      place = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    }
    if (place == MAP_FAILED) {
      throw core::Error(core::ErrorCode::kOutOfMemory,
                        core::cat("cannot share ", bytes, " bytes for the snapshot: ", std::strerror(errno)));
    }
    mapping_ = static_cast<std::byte*>(place);
    mapped_bytes_ = bytes;
    buffer_ = arena.account(mapping_, bytes, core::MemoryTag::kCkpt);
  }
  const auto touch = [data = buffer_.data()](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, static_cast<size_t>(end - begin));
  };
  if (pool != nullptr) {
    pool->parallel_for(bytes, int64_t{2} << 20, touch);
  } else {
    touch(0, bytes);
  }
}

std::vector<std::byte*> Staging::places(std::span<const ShardData> shards) const {
  const std::vector<int64_t> offsets = offsets_of(shards);
  MS_CHECK(offsets.back() <= buffer_.size_bytes(), "staging of ", buffer_.size_bytes(), " bytes for ", offsets.back());
  std::vector<std::byte*> places;
  for (size_t i = 0; i < shards.size(); ++i) places.push_back(buffer_.data() + offsets[i]);
  return places;
}

std::vector<ShardHashes> copy_shards(std::span<const ShardData> shards, std::span<std::byte* const> places,
                                     core::ThreadPool* pool, const std::atomic<int64_t>* version) {
  struct Chunk {
    size_t shard;
    int64_t begin, size;  // bytes of the shard
    uint64_t xxh3 = 0;
    LogicalPartial logical;
  };
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < shards.size(); ++i) {
    const int64_t size = bytes_of(shards[i].meta);
    for (int64_t begin = 0; begin < size; begin += kChunkBytes) {
      chunks.push_back({i, begin, std::min(kChunkBytes, size - begin), 0, {}});
    }
  }
  const int64_t begun = version == nullptr ? 0 : version->load();
  const auto copy = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      Chunk& chunk = chunks[static_cast<size_t>(i)];
      const core::ShardedTensor& shard = shards[chunk.shard].meta;
      const std::byte* from = shards[chunk.shard].data + chunk.begin;
      std::byte* to = places[chunk.shard] + chunk.begin;
      // Non-temporal stores: they take half the time, and keep the training's data in the caches.
      if (has_whole_cells(shard)) {
        const int64_t item = core::size_of(shard.dtype);
        chunk.xxh3 = copy_and_hash_chunk(shard, chunk.begin / item, chunk.size / item, from, to, chunk.logical);
      } else {
        kernels::copy_row(from, chunk.size, to, kernels::Stores::kNonTemporal);
      }
      MS_CHECK(version == nullptr || version->load() == begun, shard.key, " was updated while its snapshot was taken");
    }
  };
  const auto count = static_cast<int64_t>(chunks.size());
  if (pool != nullptr) {
    pool->parallel_for(count, 1, copy);
  } else {
    copy(0, count);
  }
  std::vector<ShardHashes> hashes(shards.size());
  for (const Chunk& chunk : chunks) {
    if (!has_whole_cells(shards[chunk.shard].meta)) continue;
    hashes[chunk.shard].chunk_xxh3.push_back(chunk.xxh3);
    hashes[chunk.shard].logical.merge(chunk.logical);
  }
  return hashes;
}

}  // namespace ms::ckpt
