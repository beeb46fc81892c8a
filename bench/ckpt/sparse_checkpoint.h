// A checkpoint whose rank files are holes: any size, no disk. All values are zero, and every hash is right: a chunk's
// is XXH3 of as many zeros, a tensor's the sum over its cells of zeros. Only the files' structure hashes are made up,
// since there is no HDF5 in them: `msckpt verify` would say so.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ckpt/detail/rank_file.h"
#include "ckpt/logical_hash.h"
#include "ckpt/manifest.h"
#include "ckpt/plan.h"
#include "ckpt/shard_list.h"
#include "core/error.h"
#include "core/io/file.h"
#include "kernels/checksum.h"

namespace ms::bench {

// `list` as layout.h makes it. Returns the number of bytes of tensors.
inline int64_t make_sparse_checkpoint(const std::filesystem::path& directory, const ckpt::CheckpointInfo& info,
                                      const ckpt::ShardList& list) {
  ckpt::Manifest manifest;
  manifest.producer = "bench";
  manifest.info = info;
  const ckpt::ShardTable& shards = list.shards;
  // Places in rank order, boxes in tensor order.
  std::vector<int64_t> ends(static_cast<size_t>(list.ranks.back()) + 1, 4096), at(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    int64_t& end = ends[static_cast<size_t>(list.ranks[i])];
    at[i] = end;
    end += (shards.size_bytes(i) + 4095) / 4096 * 4096;
  }
  std::vector<int32_t> file_of_rank;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    file_of_rank.push_back(ends[rank] > 4096 ? static_cast<int32_t>(manifest.files.size()) : -1);
    if (ends[rank] == 4096) continue;
    manifest.files.push_back({ckpt::rank_file_name(static_cast<int>(rank)), ends[rank]});
    const core::File file = core::File::create((directory / manifest.files.back().name).string());
    if (::ftruncate(file.fd(), ends[rank]) != 0) throw core::Error(core::ErrorCode::kIo, "ftruncate");
  }
  const std::vector<std::byte> zeros(ckpt::kChunkBytes);
  std::map<int64_t, uint64_t> hash_of_zeros;
  const auto zero_hash = [&](int64_t size) {
    const auto [place, is_new] = hash_of_zeros.try_emplace(size);
    if (is_new) place->second = kernels::xxh3(zeros.data(), static_cast<size_t>(size));
    return place->second;
  };
  std::map<std::tuple<core::DType, core::Dims>, uint64_t> logical;
  const auto logical_of = [&](const core::ShardedTensor& tensor) {
    const auto [place, is_new] = logical.try_emplace({tensor.dtype, tensor.global_shape});
    if (!is_new) return place->second;
    core::ShardedTensor whole = tensor;
    whole.global_offset.assign(whole.global_shape.size(), 0);
    whole.local_shape = whole.global_shape;
    ckpt::LogicalPartial sum;
    const int64_t total = core::num_elements(whole.global_shape), step = ckpt::kChunkBytes / core::size_of(whole.dtype);
    for (int64_t first = 0; first < total; first += step) {
      ckpt::add_logical(whole, first, std::min(step, total - first), zeros.data(), sum);
    }
    return place->second = ckpt::finish_logical(whole.dtype, whole.global_shape, sum);
  };
  const ckpt::ShardsOfTensors groups(shards);
  manifest.boxes.reserve(shards.size());
  std::vector<uint64_t> chunks;
  for (size_t t = 0; t < shards.num_tensors(); ++t) {
    const auto tensor = static_cast<int32_t>(t);
    for (size_t i = 0; i < groups.count(tensor); ++i) {
      const auto shard = static_cast<size_t>(groups.member(tensor, i));
      if (i == 0) {
        manifest.logical_xxh3.push_back(logical_of(shards[shard]));
        manifest.boxes.add_tensor(shards.key(tensor), shards.role(tensor), shards.dtype(tensor),
                                  shards.global_shape(tensor));
      }
      const int64_t size = shards.size_bytes(shard);
      chunks.clear();
      for (int64_t begin = 0; begin < size; begin += ckpt::kChunkBytes) {
        chunks.push_back(zero_hash(std::min(ckpt::kChunkBytes, size - begin)));
      }
      manifest.add_box(tensor, shards.offsets(shard), shards.extents(shard),
                       file_of_rank[static_cast<size_t>(list.ranks[shard])], static_cast<int32_t>(i), at[shard],
                       chunks);
    }
  }
  ckpt::write_manifest(directory, manifest);
  return manifest.tensor_bytes();
}

}  // namespace ms::bench
