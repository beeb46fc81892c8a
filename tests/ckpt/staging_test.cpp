// The bytes that a snapshot copies, and the hashes that it computes on the way.
#include "ckpt/detail/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "ckpt/copy_box.h"
#include "core/thread_pool.h"
#include "kernels/checksum.h"
#include "tests/support/random_values.h"

namespace ms::ckpt {
namespace {

using core::DType;

// A part of a tensor [global rows, global width], starting at (row, column).
core::ShardedTensor part(DType dtype, core::Dims global, core::Dims offset, core::Dims local) {
  return {"w", core::TensorRole::kParam, dtype, std::move(global), std::move(offset), std::move(local), 0};
}

struct Case {
  core::ShardedTensor tensor;
  bool hashed;  // hashed while copied
};

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    cases.push_back({part(dtype, {3000, 1000}, {0, 0}, {3000, 1000}), true});  // the last cell of a row is short
    cases.push_back({part(dtype, {2, 4096}, {1, 0}, {1, 4096}), true});
    cases.push_back({part(dtype, {77, 512}, {3, 128}, {50, 256}), true});
    cases.push_back({part(dtype, {77, 500}, {0, 448}, {77, 52}), true});  // up to the end of the row
    cases.push_back({part(dtype, {5}, {0}, {5}), true});
    cases.push_back({part(dtype, {}, {}, {}), true});
    cases.push_back({part(dtype, {300, 200}, {0, 100}, {300, 100}), false});  // starts within a cell
    cases.push_back({part(dtype, {300, 200}, {0, 64}, {300, 100}), false});   // ends within a cell
  }
  return cases;
}

TEST(CopyShards, CopiesBytesAndComputesHashes) {
  for (const int threads : {0, 1, 3}) {
    const std::vector<Case> all = cases();
    std::vector<std::vector<std::byte>> values;
    std::vector<ShardData> shards;
    uint64_t seed = 0;
    for (const Case& each : all) {
      const auto floats = test::RandomValues(++seed).make(bytes_of(each.tensor) / 4 + 2);
      // Unaligned for vectors: parameters are contiguous in one buffer.
      std::vector<std::byte>& bytes = values.emplace_back(static_cast<size_t>(bytes_of(each.tensor)) + 2);
      std::memcpy(bytes.data(), floats.data(), bytes.size());
      shards.push_back({each.tensor, bytes.data() + 2});
    }
    core::Arena arena;
    Staging staging;
    core::ThreadPool pool(std::max(1, threads));
    staging.reserve(shards, arena, nullptr);
    const std::vector<std::byte*> places = staging.places(shards);
    const std::vector<ShardHashes> hashes = copy_shards(shards, places, threads == 0 ? nullptr : &pool, nullptr);
    ASSERT_EQ(hashes.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      const core::ShardedTensor& tensor = all[i].tensor;
      const int64_t size = bytes_of(tensor), item = core::size_of(tensor.dtype);
      EXPECT_EQ(std::memcmp(places[i], shards[i].data, static_cast<size_t>(size)), 0) << "shard " << i;
      ASSERT_EQ(!hashes[i].chunk_xxh3.empty(), all[i].hashed) << "shard " << i;
      if (!all[i].hashed) continue;
      std::vector<uint64_t> chunks;
      for (int64_t at = 0; at < size; at += kChunkBytes) {
        chunks.push_back(kernels::xxh3(places[i] + at, static_cast<size_t>(std::min(kChunkBytes, size - at))));
      }
      EXPECT_EQ(hashes[i].chunk_xxh3, chunks) << "shard " << i;
      LogicalPartial whole;
      add_logical(tensor, 0, size / item, places[i], whole);
      EXPECT_LE(hashes[i].logical.pieces.size(), 2 * chunks.size()) << "shard " << i;
      if (tensor.local_shape == tensor.global_shape) {
        EXPECT_EQ(finish_logical(tensor.dtype, tensor.global_shape, hashes[i].logical),
                  finish_logical(tensor.dtype, tensor.global_shape, whole))
            << "shard " << i;
      } else {
        EXPECT_EQ(hashes[i].logical.sum, whole.sum) << "shard " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ms::ckpt
