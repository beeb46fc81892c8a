#include "ckpt/hashing_sink.h"

#include <gtest/gtest.h>

#include "ckpt/shard_list.h"
#include "core/layout/model_layout.h"
#include "tests/ckpt/state.h"

namespace ms::ckpt {
namespace {

// Accepts everything and stores nothing.
class NoSink final : public Sink {
 public:
  void begin(const CheckpointInfo&, const ShardTable&) override {}
  void write(int32_t, int64_t, int64_t, const std::byte*) override {}
  std::filesystem::path commit() override { return "nowhere"; }
  bool wants(int32_t target) const override { return target != skipped; }
  int64_t chunk_elements(const core::ShardedTensor&) const override { return 7 * 24; }
  int32_t skipped = -1;
};

class HashingSinkTest : public ::testing::Test {
 protected:
  HashingSinkTest() : config_(test::small_model(31, false, 72)) {}
  // Copies a checkpoint of one rank into the layout.
  std::vector<WrittenTensor> written(const layout::ModelLayout& layout, int64_t max_cut_bytes = 1 << 20,
                                     int32_t skipped = -1) {
    const auto roles = test::mixed_roles();
    const ShardList from = shards_of_checkpoint({}, config_, roles), to = shards_of_checkpoint(layout, config_, roles);
    test::MemorySource source(from.shards, test::make_info({}, config_));
    NoSink sink;
    sink.skipped = skipped;
    HashingSink hashing(sink, max_cut_bytes);
    ExecuteOptions options;
    options.threads = 3;
    execute(source, hashing, source.info(), to.shards, options);
    return hashing.tensors();
  }
  core::TransformerConfig config_;
};

TEST_F(HashingSinkTest, HashesEqualTheManifestsInEveryLayout) {
  test::TemporaryFolder folder;
  const auto native = open_native(test::write_checkpoint(folder.path(), {}, config_));
  for (const layout::ModelLayout& layout :
       {layout::ModelLayout{}, layout::ModelLayout{2, 2, 1}, layout::ModelLayout{4, 1, 2, 1}}) {
    const auto tensors = written(layout);
    EXPECT_EQ(tensors.size(), native->shards().num_tensors());
    for (const WrittenTensor& tensor : tensors) {
      ASSERT_TRUE(tensor.logical_xxh3) << tensor.key;
      EXPECT_EQ(tensor.logical_xxh3, native->logical_xxh3(tensor.key, tensor.role)) << tensor.key;
    }
  }
}

TEST_F(HashingSinkTest, PartialTensorsAndThoseBeyondTheLimitHaveNoHash) {
  const auto count = [](const std::vector<WrittenTensor>& tensors) {
    return std::count_if(tensors.begin(), tensors.end(),
                         [](const auto& tensor) { return tensor.logical_xxh3.has_value(); });
  };
  const auto all = static_cast<int64_t>(written({}).size());
  EXPECT_EQ(count(written({}, 1 << 20, 5)), all - 1);
  const int64_t with_little = count(written({4, 1, 1}, 64));
  EXPECT_LT(with_little, all);
  EXPECT_GT(with_little, 0);
}

}  // namespace
}  // namespace ms::ckpt
