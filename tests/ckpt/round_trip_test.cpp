// Written in one layout, read in another, compared value by value.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "ckpt/manifest.h"
#include "ckpt/reshard.h"
#include "ckpt/shard_list.h"
#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

using namespace test;  // NOLINT
using ms::test::read_file;

std::vector<layout::ModelLayout> layouts() {
  std::vector<layout::ModelLayout> all;
  for (const int tp : {1, 2, 4}) {
    for (const int pp : {1, 2}) {
      for (const int dp : {1, 2}) {
        for (const bool zero : {false, true}) {
          if (tp * pp * dp <= 8 && !(zero && dp == 1)) all.push_back({tp, pp, dp, zero});
        }
      }
    }
  }
  return all;
}

class RoundTrip : public ::testing::TestWithParam<int64_t> {};

TEST_P(RoundTrip, EachLayoutLoadsInEachOther) {
  const auto config = small_model(GetParam(), GetParam() == 127);
  std::map<std::pair<std::string, core::TensorRole>, uint64_t> hashes;
  for (const layout::ModelLayout& from : layouts()) {
    TemporaryFolder folder;
    const auto path = write_checkpoint(folder.path(), from, config);
    const auto source = open_native(path);
    for (const auto& shard : source->shards()) {  // the logical hash does not depend on the layout
      const uint64_t hash = source->logical_xxh3(shard.key, shard.role).value();
      EXPECT_EQ(hashes.emplace(std::pair(shard.key, shard.role), hash).first->second, hash) << shard.key;
    }
    for (const layout::ModelLayout& to : layouts()) expect_loads(*source, to, config);
  }
}

TEST(VirtualStages, EachNumberLoadsInEachOther) {
  auto config = small_model(127, true);
  config.num_layers = 4;
  const std::vector<layout::ModelLayout> cuts = {
      {1, 1, 1, false, 1}, {1, 2, 1, false, 1}, {1, 2, 2, true, 2}, {2, 2, 1, false, 2}, {1, 4, 1, false, 1}};
  for (const layout::ModelLayout& from : cuts) {
    TemporaryFolder folder;
    const auto source = open_native(write_checkpoint(folder.path(), from, config));
    EXPECT_EQ(layout::layout_from_json(source->info().layout), from);
    for (const layout::ModelLayout& to : cuts) expect_loads(*source, to, config);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, RoundTrip, ::testing::Values(17, 127));

TEST(RoundTripLarge, VocabularyAcrossManyChunks) {
  // 31123 x 200 fp32: three chunks, rows split by chunk boundaries, padding that no rank stores.
  auto config = small_model(31123, false, 200);
  config.make_vocab_size_divisible_by = 128;
  const std::vector<RoleSpec> roles = {{core::TensorRole::kParam, core::DType::kFp32}};
  TemporaryFolder folder;
  const auto path = write_checkpoint(folder.path(), {2, 1, 1, false}, config, roles, 100, 2);
  const auto source = open_native(path);
  expect_loads(*source, {4, 2, 1, false}, config, roles);
}

TEST(RoundTripLarge, DtypesAreConverted) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  const std::vector<RoleSpec> bf16 = {{core::TensorRole::kParam, core::DType::kBf16}};
  const auto source = open_native(write_checkpoint(folder.path(), {2, 1, 1, false}, config, bf16));
  auto metas = shards_of_rank({1, 1, 1, false}, config, 0, bf16);
  for (auto& meta : metas) {
    const auto narrow = shard_bytes(meta);
    meta.dtype = core::DType::kFp32;
    std::vector<std::byte> wide(static_cast<size_t>(core::num_elements(meta.local_shape)) * 4);
    load_shards(*source, std::vector<ShardTarget>{{meta, wide.data()}});
    for (size_t i = 0; i < wide.size() / 4; ++i) {
      uint16_t expected;
      uint32_t seen;
      std::memcpy(&expected, narrow.data() + 2 * i, 2);
      std::memcpy(&seen, wide.data() + 4 * i, 4);
      ASSERT_EQ(seen, static_cast<uint32_t>(expected) << 16) << meta.key << " " << i;
    }
  }
}

TEST(RoundTripLarge, HalfPrecisionRoundsToNearestEven) {
  const std::vector<float> values = {0.0f,     -0.0f,       1.0f,     65504.0f,        -2.5f,
                                     0x1p-24f, 0x1.8p-25f,  0x1p-25f, 1.0f + 0x1p-11f, 1.0f + 0x1.8p-10f,
                                     0x1p-14f, 0x1.ff8p-15f};
  const std::vector<uint16_t> expected = {0x0000, 0x8000, 0x3c00, 0x7bff, 0xc100, 0x0001,
                                          0x0001, 0x0000, 0x3c00, 0x3c02, 0x0400, 0x03ff};
  std::vector<uint16_t> half(values.size());
  convert_elements(reinterpret_cast<const std::byte*>(values.data()), core::DType::kFp32,
                   reinterpret_cast<std::byte*>(half.data()), core::DType::kFp16, static_cast<int64_t>(values.size()));
  EXPECT_EQ(half, expected);
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every finite half is unchanged after conversion to fp32 and back
    if ((bits & 0x7c00u) == 0x7c00u) continue;
    const auto from = static_cast<uint16_t>(bits);
    float wide;
    uint16_t back;
    convert_elements(reinterpret_cast<const std::byte*>(&from), core::DType::kFp16, reinterpret_cast<std::byte*>(&wide),
                     core::DType::kFp32, 1);
    convert_elements(reinterpret_cast<const std::byte*>(&wide), core::DType::kFp32, reinterpret_cast<std::byte*>(&back),
                     core::DType::kFp16, 1);
    ASSERT_EQ(back, from);
  }
  const float large = 70000.0f;
  EXPECT_EQ(thrown_by([&] {
              uint16_t out;
              convert_elements(reinterpret_cast<const std::byte*>(&large), core::DType::kFp32,
                               reinterpret_cast<std::byte*>(&out), core::DType::kFp16, 1);
            }).code,
            core::ErrorCode::kInvalidArgument);
}

TEST(RoundTripLarge, EqualStateGivesEqualBytes) {
  const auto config = small_model(127, false, 200);  // some tensors packed, some not
  TemporaryFolder a, b;
  const auto first = write_checkpoint(a.path(), {2, 1, 2, true}, config);
  ::usleep(1100000);  // a timestamp in a file would differ
  const auto second = write_checkpoint(b.path(), {2, 1, 2, true}, config, mixed_roles(), 100, 2);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(first)) names.insert(entry.path().filename());
  EXPECT_EQ(names.size(), 5u);
  for (const std::string& name : names) EXPECT_EQ(read_file(first / name), read_file(second / name)) << name;
}

TEST(RoundTripLarge, MissingTensorIsNamed) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  const std::vector<RoleSpec> only_params = {{core::TensorRole::kParam, core::DType::kFp32}};
  const auto source = open_native(write_checkpoint(folder.path(), {1, 1, 1, false}, config, only_params));
  EXPECT_FALSE(has_role(*source, core::TensorRole::kMaster));
  std::vector<float> out(24);
  core::ShardedTensor meta{
      "decoder.final_layernorm.weight", core::TensorRole::kExpAvg, core::DType::kFp32, {24}, {0}, {24}, 0};
  const auto thrown = thrown_by([&] {
    load_shards(*source, std::vector<ShardTarget>{{meta, reinterpret_cast<std::byte*>(out.data())}});
  });
  EXPECT_EQ(thrown.code, core::ErrorCode::kCorruptData);
  EXPECT_NE(thrown.text.find("decoder.final_layernorm.weight (exp_avg)"), std::string::npos) << thrown.text;
}

TEST(RoundTripLarge, LoadStopsOnRequest) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  const auto source = open_native(write_checkpoint(folder.path(), {1, 1, 1, false}, config));
  std::vector<float> out(24);
  const core::ShardedTensor meta{
      "decoder.final_layernorm.weight", core::TensorRole::kParam, core::DType::kFp32, {24}, {0}, {24}, 0};
  const std::vector<ShardTarget> targets(2, {meta, reinterpret_cast<std::byte*>(out.data())});
  int asked = 0;
  const auto thrown = thrown_by([&] { load_shards(*source, targets, [&] { return ++asked == 2; }); });
  EXPECT_EQ(thrown.code, core::ErrorCode::kIo);
  EXPECT_EQ(thrown.text, "interrupted");
}

// Reshards a checkpoint to another layout; returns the new directory.
std::filesystem::path reshard(const std::filesystem::path& from, const std::filesystem::path& root,
                              const layout::ModelLayout& layout, const ExecuteOptions& options = {}) {
  const auto source = open_native(from);
  const ReshardPlan plan = plan_reshard(*source, layout, {});
  NativeSinkOptions sink_options;
  sink_options.root = root;
  sink_options.rank_of_target = plan.targets.ranks;
  sink_options.num_ranks = layout.world_size();
  sink_options.expected_logical_xxh3 = hashes_to_keep(*source);
  const auto sink = make_native_sink(std::move(sink_options));
  return execute(*source, *sink, plan.info, plan.targets.shards, options).path;
}

TEST(Reshard, RandomWalksRestoreAllBytes) {
  const char* seed_text = std::getenv("MS_TEST_SEED");
  const uint64_t seed = seed_text != nullptr ? std::strtoull(seed_text, nullptr, 10) : 20260813;
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto all = layouts();
  for (int walk = 0; walk < 8; ++walk) {
    auto config = small_model(walk % 2 == 0 ? 17 : 127, walk % 3 == 0);
    config.num_query_groups = 4;  // as many as tensor-parallel ranks
    const layout::ModelLayout& home = all[random() % all.size()];
    TemporaryFolder folder;
    const auto start = write_checkpoint(folder / "0", home, config);
    ExecuteOptions options;
    options.threads = 1 + walk % 2;
    auto at = reshard(start, folder / "1", all[random() % all.size()], options);
    at = reshard(at, folder / "2", all[random() % all.size()], options);
    expect_loads(*open_native(at), all[random() % all.size()], config);
    at = reshard(at, folder / "3", home, options);
    for (const auto& entry : std::filesystem::directory_iterator(start)) {
      const auto name = entry.path().filename();
      EXPECT_EQ(read_file(entry.path()), read_file(at / name)) << name << " walk " << walk << " seed " << seed;
    }
  }
}

TEST(Reshard, ToVirtualStagesAndBackIsBitwiseEqual) {
  auto config = small_model(17);
  config.num_layers = 4;
  TemporaryFolder folder;
  const layout::ModelLayout home{1, 2, 2, true, 2};
  const auto start = write_checkpoint(folder / "0", home, config);
  auto at = reshard(start, folder / "1", {2, 2, 1, false, 1});
  at = reshard(at, folder / "2", home);
  for (const auto& entry : std::filesystem::directory_iterator(start)) {
    EXPECT_EQ(read_file(entry.path()), read_file(at / entry.path().filename())) << entry.path();
  }
}

TEST(Reshard, StopLeavesNoFiles) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  const auto from = write_checkpoint(folder / "a", {2, 1, 1, false}, config);
  for (const int threads : {1, 2}) {
    int asked = 0;
    ExecuteOptions options;
    options.threads = threads;
    std::mutex mutex;
    options.stopped = [&] {
      std::lock_guard lock(mutex);
      return ++asked > 10;
    };
    EXPECT_EQ(thrown_by([&] { reshard(from, folder / "b", {1, 1, 1, false}, options); }).code, core::ErrorCode::kIo);
    for (const auto& entry : std::filesystem::directory_iterator(folder / "b")) {
      EXPECT_EQ(entry.path().filename(), ".msckpt.lock");
    }
  }
}

TEST(Reshard, MemoryBelowTheMinimumIsRefused) {
  const auto config = small_model(17);
  TemporaryFolder folder;
  const auto from = write_checkpoint(folder / "a", {1, 1, 1, false}, config);
  ExecuteOptions options;
  options.mem_bytes = kMinMemBytes - 1;
  EXPECT_EQ(thrown_by([&] {
              reshard(from, folder / "b", {1, 1, 1, false}, options);
            }).code,
            core::ErrorCode::kInvalidArgument);
}

TEST(Reshard, ModelThatDoesNotMatchItsTensorsIsRefused) {
  const auto config = small_model(17);
  auto info = make_info({}, config);
  const auto shards = shards_of_checkpoint({}, config, mixed_roles()).shards;
  info.model.num_layers = int64_t{1} << 60;  // must not allocate a list of that length
  MemorySource absurd(shards, info);
  EXPECT_EQ(thrown_by([&] { plan_reshard(absurd, {}, {}); }).code, core::ErrorCode::kCorruptData);
  info.model.num_layers = 3;
  MemorySource more(shards, info);
  EXPECT_EQ(thrown_by([&] { plan_reshard(more, {}, {}); }).code, core::ErrorCode::kCorruptData);
  info.model.num_layers = 1;
  MemorySource less(shards, info);
  EXPECT_EQ(thrown_by([&] { plan_reshard(less, {}, {}); }).code, core::ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace ms::ckpt
