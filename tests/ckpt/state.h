// A training state for tests in which every element identifies its position: bits = mix(name, role, linear index).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/copy_box.h"
#include "ckpt/execute.h"
#include "ckpt/native_sink.h"
#include "ckpt/reader.h"
#include "ckpt/shard_list.h"
#include "ckpt/writer.h"
#include "core/comm/communicator.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "kernels/checksum.h"
#include "tests/support/small_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::ckpt::test {

using ms::test::small_model;
using ms::test::TemporaryFolder;
using ms::test::Thrown;
using ms::test::thrown_by;

inline std::vector<RoleSpec> mixed_roles() {
  return {{core::TensorRole::kParam, core::DType::kBf16},
          {core::TensorRole::kMaster, core::DType::kFp32},
          {core::TensorRole::kExpAvg, core::DType::kFp32},
          {core::TensorRole::kExpAvgSq, core::DType::kFp32}};
}

inline uint64_t tensor_seed(const core::ShardedTensor& tensor) {
  const std::string name = core::cat(tensor.key, "|", core::role_name(tensor.role));
  return kernels::xxh3(name.data(), name.size());
}

// splitmix64 of the tensor's seed and the element's linear index in the global tensor.
inline uint64_t element_bits(uint64_t seed, int64_t linear_index) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(linear_index + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The bytes that a shard must contain.
inline std::vector<std::byte> shard_bytes(const core::ShardedTensor& shard) {
  const auto item = static_cast<size_t>(core::size_of(shard.dtype));
  const int64_t count = core::num_elements(shard.local_shape);
  std::vector<std::byte> bytes(static_cast<size_t>(count) * item);
  const uint64_t seed = tensor_seed(shard);
  const int64_t width = shard.local_shape.empty() ? 1 : shard.local_shape.back();
  core::Dims index(shard.local_shape.size());
  for (int64_t first = 0; first < count; first += width) {
    int64_t rest = first;
    for (size_t axis = index.size(); axis-- > 0; rest /= shard.local_shape[axis]) {
      index[axis] = shard.global_offset[axis] + rest % shard.local_shape[axis];
    }
    const int64_t linear = layout::flat_index(shard.global_shape, index);
    for (int64_t i = 0; i < width; ++i) {
      const uint64_t bits = element_bits(seed, linear + i);
      std::memcpy(bytes.data() + static_cast<size_t>(first + i) * item, &bits, item);
    }
  }
  return bytes;
}

// One rank's shards with their memory.
struct RankState {
  std::vector<core::ShardedTensor> metas;
  std::vector<std::vector<std::byte>> bytes;

  RankState(const layout::ModelLayout& layout, const core::TransformerConfig& config, int rank,
            const std::vector<RoleSpec>& roles)
      : metas(shards_of_rank(layout, config, rank, roles)) {
    for (const auto& meta : metas) bytes.push_back(shard_bytes(meta));
  }
  std::vector<ShardData> data() const {
    std::vector<ShardData> list;
    for (size_t i = 0; i < metas.size(); ++i) list.push_back({metas[i], bytes[i].data()});
    return list;
  }
};

// A source in memory: the complete state of a layout, without files.
class MemorySource final : public Source {
 public:
  MemorySource(ShardTable shards, CheckpointInfo info) : shards_(std::move(shards)), info_(std::move(info)) {
    for (const core::ShardedTensor& shard : shards_) bytes_.push_back(shard_bytes(shard));
  }
  const CheckpointInfo& info() const override { return info_; }
  const ShardTable& shards() const override { return shards_; }
  std::string describe(int32_t shard) const override { return core::cat("memory:", shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const core::ShardedTensor meta = shards_[static_cast<size_t>(shard)];
    copy_box(bytes_[static_cast<size_t>(shard)].data(), meta.local_shape, offset, out, extent,
             core::Dims(extent.size(), 0), extent, core::size_of(meta.dtype));
  }

 private:
  ShardTable shards_;
  CheckpointInfo info_;
  std::vector<std::vector<std::byte>> bytes_;
};

inline CheckpointInfo make_info(const layout::ModelLayout& layout, const core::TransformerConfig& config,
                                int64_t iteration = 100) {
  CheckpointInfo info;
  info.iteration = iteration;
  info.layout = layout::layout_to_json(layout);
  info.model = config;
  info.model_extra = {{"padded_vocab_size", config.padded_vocab_size(layout.tensor_model_parallel_size)}};
  info.common = {{"consumed_train_samples", 6400}};
  return info;
}

// Writes a checkpoint of this layout through the native sink; returns its directory.
inline std::filesystem::path write_checkpoint(const std::filesystem::path& root, const layout::ModelLayout& layout,
                                              const core::TransformerConfig& config,
                                              const std::vector<RoleSpec>& roles = mixed_roles(),
                                              int64_t iteration = 100, int threads = 1) {
  ShardList list = shards_of_checkpoint(layout, config, roles);
  const CheckpointInfo info = make_info(layout, config, iteration);
  MemorySource source(list.shards, info);
  NativeSinkOptions options;
  options.root = root;
  options.rank_of_target = list.ranks;
  options.num_ranks = layout.world_size();
  const auto sink = make_native_sink(std::move(options));
  ExecuteOptions execute_options;
  execute_options.threads = threads;
  return execute(source, *sink, info, list.shards, execute_options).path;
}

// Loads every rank of `layout` and compares each element.
inline void expect_loads(Source& source, const layout::ModelLayout& layout, const core::TransformerConfig& config,
                         const std::vector<RoleSpec>& roles = mixed_roles()) {
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto metas = shards_of_rank(layout, config, rank, roles);
    std::vector<std::vector<std::byte>> memory;
    std::vector<ShardTarget> targets;
    for (const auto& meta : metas) {
      memory.emplace_back(static_cast<size_t>(core::num_elements(meta.local_shape) * core::size_of(meta.dtype)),
                          std::byte{0xa5});
      targets.push_back({meta, memory.back().data()});
    }
    load_shards(source, targets);
    for (size_t i = 0; i < metas.size(); ++i) {
      ASSERT_EQ(memory[i], shard_bytes(metas[i]))
          << metas[i].key << " " << core::role_name(metas[i].role) << " rank " << rank;
    }
  }
}

// The communicator for a saver.
inline core::Communicator world_of(core::Endpoint& endpoint) {
  std::vector<int> ranks;
  for (int r = 0; r < endpoint.size(); ++r) ranks.push_back(r);
  return core::Communicator(endpoint, "ckpt", ranks, 1);
}

// Every file of a generation, by name.
inline std::map<std::string, std::string> contents(const std::filesystem::path& directory) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    all[entry.path().filename()] = ms::test::read_file(entry.path());
  }
  return all;
}

}  // namespace ms::ckpt::test
