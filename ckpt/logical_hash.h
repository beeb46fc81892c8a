// The logical hash: a checksum of a global tensor's values that does not depend on how the tensor is sharded.
//
// The last axis is cut into cells of 64 elements (the last cell of a row is shorter). With h = XXH3-64 of a cell's
// bytes and i its index in row-major order of cells,
//   m = h ^ (i * 0x9E3779B97F4A7C15);  m ^= m >> 32;  m *= 0xD6E8FEB86659FD93;  m ^= m >> 32
// and the hash is (sum of all m mod 2^64) ^ XXH3-64("dtype|d0,d1,..") (FORMAT.md section 5). Shards add their whole
// cells in any order; a cell that a shard boundary splits is kept in pieces until it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/sharded_tensor.h"

namespace ms::ckpt {

inline constexpr int64_t kChunkBytes = int64_t{8} << 20;  // bytes that one stored checksum covers, at most
inline constexpr int64_t kLogicalCell = 64;               // elements

// The contribution of a part of a tensor. Parts are merged in any order.
struct LogicalPartial {
  struct Piece {
    uint64_t cell = 0;
    uint32_t begin = 0;  // elements within the cell
    uint32_t count = 0;
  };
  uint64_t sum = 0;
  std::vector<Piece> pieces;
  std::vector<std::byte> bytes;  // of the pieces, concatenated

  void merge(const LogicalPartial& other);
};

// Adds the elements [first, first + count) of the shard, in row-major order of its local_shape.
void add_logical(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                 LogicalPartial& partial);

// Both hashes of a chunk in one pass over the memory: adds the elements to partial and returns the XXH3 of their bytes.
uint64_t hash_chunk(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                    LogicalPartial& partial);

// The same while copying the chunk with non-temporal stores: the source is read from memory once for both.
uint64_t copy_and_hash_chunk(const core::ShardedTensor& shard, int64_t first, int64_t count, const std::byte* data,
                             std::byte* to, LogicalPartial& partial);

// Both hashes of a whole shard.
struct ShardHashes {
  std::vector<uint64_t> chunk_xxh3;  // empty: not known
  LogicalPartial logical;
};

// True if no boundary of the shard splits a cell: its partial then has at most two pieces per chunk.
bool has_whole_cells(const core::ShardedTensor& shard);

// The hash of the whole tensor. Throws kInternal if the pieces do not form whole cells: a part is missing or was added
// twice.
uint64_t finish_logical(core::DType dtype, const core::Dims& global_shape, const LogicalPartial& partial);

}  // namespace ms::ckpt
