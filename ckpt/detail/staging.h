// The memory that a snapshot is copied to: allocated once, touched, and used for save after save.
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

// Shards that a save writes: not the replicas, not those without elements.
std::vector<ShardData> written_shards(std::span<const ShardData> shards);

// The same in boxes of whole rows of at most kChunkBytes, or one row.
std::vector<ShardData> cut_into_chunks(std::span<const ShardData> shards);

class Staging {
 public:
  // Room for these shards, if there is not yet; touched, by pool if there is one. Throws kOutOfMemory.
  void reserve(std::span<const ShardData> shards, core::Arena& arena, core::ThreadPool* pool);

  // Where each shard's copy lies, in order: large ones at multiples of core::kDirectAlignment.
  std::vector<std::byte*> places(std::span<const ShardData> shards) const;

  std::byte* data() const { return buffer_.data(); }
  int64_t size_bytes() const { return buffer_.size_bytes(); }

  // In shared memory (memfd_create) instead, so that another process that has the descriptor can read it. Before the
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
  std::byte* mapping_ = nullptr;  // of it
  int64_t mapped_bytes_ = 0;
};

// Copies every shard to its place, and hashes on the way those that have whole cells: both together take hardly longer
// than memcpy, while hashing the copy later would take the training's time and bandwidth again. The others' hashes are
// empty: pieces of their cells may take as much memory as they do (cut_cells.h). version: compared before and after
// each chunk if not null; throws kInternal if it has changed: the state was updated under the copy.
std::vector<ShardHashes> copy_shards(std::span<const ShardData> shards, std::span<std::byte* const> places,
                                     core::ThreadPool* pool, const std::atomic<int64_t>* version);

}  // namespace ms::ckpt
