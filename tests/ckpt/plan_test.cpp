#include "ckpt/plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "core/layout/box.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

using core::Dims;
using core::ShardedTensor;

uint64_t seed() {
  const char* text = std::getenv("MS_TEST_SEED");
  const uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 20260811;
  ::testing::Test::RecordProperty("seed", std::to_string(value));
  return value;
}

ShardedTensor shard(const Dims& shape, const Dims& offset, const Dims& extent, const std::string& key = "t") {
  return {key, core::TensorRole::kParam, core::DType::kFp32, shape, offset, extent, 0};
}

// Splits a box at random places recursively: an irregular tiling.
void random_tiling(std::mt19937_64& random, const Dims& shape, const Dims& offset, const Dims& extent, int depth,
                   std::vector<ShardedTensor>& out) {
  const size_t axis = random() % shape.size();
  if (depth == 0 || extent[axis] < 2 || random() % 5 == 0) {
    out.push_back(shard(shape, offset, extent));
    return;
  }
  const int64_t cut = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(extent[axis] - 1));
  Dims left(extent), right(extent), right_offset(offset);
  left[axis] = cut;
  right[axis] = extent[axis] - cut;
  right_offset[axis] += cut;
  random_tiling(random, shape, offset, left, depth - 1, out);
  random_tiling(random, shape, right_offset, right, depth - 1, out);
}

// Every index of a box, row-major.
void for_each_index(const Dims& offset, const Dims& extent, const std::function<void(const Dims&)>& visit) {
  for (int64_t i = 0; i < core::num_elements(extent); ++i) {
    Dims index(offset);
    int64_t rest = i;
    for (size_t axis = extent.size(); axis-- > 0; rest /= extent[axis]) index[axis] += rest % extent[axis];
    visit(index);
  }
}

TEST(Plan, RandomTilingsAreCopiedElementByElement) {
  std::mt19937_64 random(seed());
  for (int round = 0; round < 300; ++round) {
    Dims shape(1 + random() % 3);
    for (int64_t& dim : shape) dim = 1 + static_cast<int64_t>(random() % 9);
    const Dims zero(shape.size(), 0);
    std::vector<ShardedTensor> sources, targets;
    random_tiling(random, shape, zero, shape, 5, sources);
    random_tiling(random, shape, zero, shape, 5, targets);
    std::shuffle(sources.begin(), sources.end(), random);
    // owner[t][i]: the global element that the copies write to flat index i of target t.
    std::vector<std::vector<int64_t>> owner;
    for (const auto& target : targets) owner.emplace_back(core::num_elements(target.local_shape), -1);
    int32_t last = 0;
    plan_copies(sources, targets, [&](const CopyRegion& copy) {
      ASSERT_GE(copy.target_shard, last);
      last = copy.target_shard;
      const auto& source = sources[static_cast<size_t>(copy.source_shard)];
      const auto& target = targets[static_cast<size_t>(copy.target_shard)];
      for_each_index(zero, copy.extent, [&](const Dims& at) {
        Dims global(at), local(at);
        for (size_t a = 0; a < at.size(); ++a) {
          global[a] += copy.source_offset[a] + source.global_offset[a];
          local[a] += copy.target_offset[a];
        }
        int64_t& place = owner[static_cast<size_t>(copy.target_shard)]
                              [static_cast<size_t>(layout::flat_index(target.local_shape, local))];
        ASSERT_EQ(place, -1) << "filled twice";
        place = layout::flat_index(shape, global);
      });
    });
    for (size_t t = 0; t < targets.size(); ++t) {
      size_t i = 0;
      for_each_index(targets[t].global_offset, targets[t].local_shape,
                     [&](const Dims& global) { ASSERT_EQ(owner[t][i++], layout::flat_index(shape, global)); });
    }
  }
}

TEST(Plan, FindsEveryHoleAndOverlapInRandomTilings) {
  std::mt19937_64 random(seed() + 1);
  for (int round = 0; round < 300; ++round) {
    Dims shape(1 + random() % 3);
    for (int64_t& dim : shape) dim = 2 + static_cast<int64_t>(random() % 6);
    std::vector<ShardedTensor> shards;
    random_tiling(random, shape, Dims(shape.size(), 0), shape, 5, shards);
    EXPECT_TRUE(check_coverage(shards).empty());
    const size_t victim = random() % shards.size();
    auto holed = shards;
    holed.erase(holed.begin() + static_cast<int64_t>(victim));
    if (!holed.empty()) {
      EXPECT_FALSE(check_coverage(holed).empty());
    }
    auto doubled = shards;
    doubled.push_back(shards[victim]);
    EXPECT_FALSE(check_coverage(doubled).empty());
    // A hole and an overlap of the same size: the total size is right, the tiling is wrong.
    for (size_t other = 0; other < shards.size(); ++other) {
      if (other == victim || shards[other].local_shape != shards[victim].local_shape) continue;
      auto moved = shards;
      moved[victim].global_offset = shards[other].global_offset;
      EXPECT_FALSE(check_coverage(moved).empty());
    }
  }
}

TEST(Plan, RangesAreBoxesInFlatOrder) {
  std::mt19937_64 random(seed() + 2);
  for (int round = 0; round < 300; ++round) {
    Dims shape(random() % 4);
    for (int64_t& dim : shape) dim = 1 + static_cast<int64_t>(random() % 5);
    const int64_t total = core::num_elements(shape);
    const int64_t first = static_cast<int64_t>(random() % static_cast<uint64_t>(total));
    const int64_t count = static_cast<int64_t>(random() % static_cast<uint64_t>(total - first + 1));
    int64_t next = first;
    size_t boxes = 0;
    layout::for_each_box_of_range(shape, first, count, [&](const layout::Box& box, int64_t begin) {
      ASSERT_EQ(begin, next);
      ++boxes;
      for_each_index(box.offset, box.extent,
                     [&](const Dims& index) { ASSERT_EQ(layout::flat_index(shape, index), next++); });
    });
    EXPECT_EQ(next, first + count);
    EXPECT_LE(boxes, 2 * shape.size() + 1);
  }
}

TEST(Plan, ErrorsNameTheTensor) {
  const Dims shape{4, 4};
  const auto whole = shard(shape, {0, 0}, {4, 4});
  const auto refused = [&](std::vector<ShardedTensor> sources, std::vector<ShardedTensor> targets) {
    int emitted = 0;
    const auto thrown = test::thrown_by([&] { plan_copies(sources, targets, [&](const CopyRegion&) { ++emitted; }); });
    EXPECT_EQ(emitted, 0);
    EXPECT_NE(thrown.text.find("t"), std::string::npos);
    return thrown;
  };
  EXPECT_EQ(refused({}, {whole}).code, core::ErrorCode::kCorruptData);
  EXPECT_NE(refused({shard(shape, {0, 0}, {3, 4})}, {whole}).text.find("no shard holds element [3, 0]"),
            std::string::npos);
  EXPECT_NE(refused({shard(shape, {0, 0}, {3, 4}), shard(shape, {2, 0}, {2, 4})}, {whole}).text.find("overlap"),
            std::string::npos);
  EXPECT_NE(refused({shard(shape, {1, 0}, {4, 4})}, {whole}).text.find("is outside the shape"), std::string::npos);
  EXPECT_EQ(refused({whole}, {shard({4, 5}, {0, 0}, {4, 5})}).code, core::ErrorCode::kInvalidArgument);
}

TEST(Plan, SourceReplicasAreNotReadTargetReplicasAreFilled) {
  const Dims shape{4};
  auto replica = shard(shape, {0}, {4});
  replica.replica_id = 1;
  std::vector<ShardedTensor> sources = {replica, shard(shape, {0}, {4})};
  std::vector<ShardedTensor> targets = {replica};
  int copies = 0;
  plan_copies(sources, targets, [&](const CopyRegion& copy) {
    EXPECT_EQ(copy.source_shard, 1);
    ++copies;
  });
  EXPECT_EQ(copies, 1);
}

}  // namespace
}  // namespace ms::ckpt
