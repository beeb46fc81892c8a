// The memory that a snapshot is copied to: allocated and touched once, reused for every save.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckpt/logical_hash.h"
#include "ckpt/shard_data.h"
#include "core/arena.h"
#include "core/thread_pool.h"

namespace ms::ckpt {

// The shards that a save writes: neither replicas nor empty shards.
std::vector<ShardData> written_shards(std::span<const ShardData> shards);

// The same shards cut into boxes of whole rows, of at most kChunkBytes or one row.
std::vector<ShardData> cut_into_chunks(std::span<const ShardData> shards);

class Staging {
 public:
  // Makes room for these shards if there is not enough; touches it, with pool if not null. Throws kOutOfMemory.
  void reserve(std::span<const ShardData> shards, core::Arena& arena, core::ThreadPool* pool);

  // The address of each shard's copy, in order: large ones at multiples of core::kDirectAlignment.
  std::vector<std::byte*> places(std::span<const ShardData> shards) const;

  std::byte* data() const { return buffer_.data(); }
  int64_t size_bytes() const { return buffer_.size_bytes(); }

  // Uses shared memory (memfd_create) instead, so that another process with the descriptor can read it. Call before the
  // first reserve().
  void share(int descriptor) { descriptor_ = descriptor; }
  ~Staging();
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

 private:
  void unmap();
  core::Buffer buffer_;
  int descriptor_ = -1;           // not owned
  std::byte* mapping_ = nullptr;  // mapping of descriptor_
  int64_t mapped_bytes_ = 0;
};

// Copies every shard to its place and hashes shards with whole cells on the way: both together take hardly longer than
// memcpy, while hashing the copy later would take time and bandwidth from the training again. The hashes of other
// shards are empty: pieces of their cells may take as much memory as the shards (cut_cells.h). version: if not null,
// compared before and after each chunk; throws kInternal if it changed: the state was updated during the copy.
std::vector<ShardHashes> copy_shards(std::span<const ShardData> shards, std::span<std::byte* const> places,
                                     core::ThreadPool* pool, const std::atomic<int64_t>* version);

}  // namespace ms::ckpt
