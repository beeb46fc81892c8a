// Compressed checkpoints: smaller, same values, same bytes for any writer, and damage is found.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "ckpt/copy_box.h"
#include "ckpt/verify.h"
#include "core/rng.h"
#include "tests/ckpt/state.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT

// Whole tensors in memory with values like those of a trained model: 9 MiB of fp32 (two chunks), bf16, and noise.
class WeightsSource final : public Source {
 public:
  WeightsSource() {
    info_ = make_info({}, small_model(17), 100);
    add("decoder.layers.0.mlp.linear_fc1.weight", core::DType::kFp32, {1536, 1536});
    add("decoder.layers.0.mlp.linear_fc2.weight", core::DType::kBf16, {512, 256});
    add("decoder.layers.1.mlp.linear_fc1.weight", core::DType::kInt32, {300, 100});
    add("decoder.final_layernorm.weight", core::DType::kFp32, {64});
  }
  const CheckpointInfo& info() const override { return info_; }
  const ShardTable& shards() const override { return table_; }
  std::string describe(int32_t shard) const override { return table_[static_cast<size_t>(shard)].key; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const core::ShardedTensor tensor = table_[static_cast<size_t>(shard)];
    copy_box(bytes_[static_cast<size_t>(shard)].data(), tensor.local_shape, offset, out, extent,
             core::Dims(extent.size(), 0), extent, core::size_of(tensor.dtype));
  }
  const std::vector<std::byte>& bytes(size_t shard) const { return bytes_[shard]; }

 private:
  void add(const std::string& key, core::DType dtype, const core::Dims& shape) {
    const core::Rng rng(7, key);
    const auto item = static_cast<size_t>(core::size_of(dtype));
    std::vector<std::byte> bytes(static_cast<size_t>(core::num_elements(shape)) * item);
    for (size_t i = 0; i < bytes.size() / item; ++i) {
      const float value = 0.02F * rng.normal(i);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      if (dtype == core::DType::kBf16) bits >>= 16;
      if (dtype == core::DType::kInt32) bits = static_cast<uint32_t>(rng.bits(i));
      std::memcpy(bytes.data() + i * item, &bits, item);
    }
    table_.push_back({key, core::TensorRole::kParam, dtype, shape, core::Dims(shape.size(), 0), shape, 0});
    bytes_.push_back(std::move(bytes));
  }
  CheckpointInfo info_;
  ShardTable table_;
  std::vector<std::vector<std::byte>> bytes_;
};

fs::path write(WeightsSource& source, const fs::path& root, bool compress, int threads) {
  NativeSinkOptions options;
  options.root = root;
  options.compress = compress;
  const auto sink = make_native_sink(std::move(options));
  const std::vector<core::ShardedTensor> targets(source.shards().begin(), source.shards().end());
  ExecuteOptions execution;
  execution.threads = threads;
  return execute(source, *sink, source.info(), targets, execution).path;
}

int64_t bytes_in(const fs::path& generation) {
  return static_cast<int64_t>(fs::file_size(generation / "rank_00000.h5"));
}

TEST(Compression, FilesAreSmallerAndHoldTheSameValues) {
  WeightsSource source;
  TemporaryFolder plain, compressed, again;
  const fs::path a = write(source, plain.path(), false, 1), b = write(source, compressed.path(), true, 1);
  EXPECT_GE(static_cast<double>(bytes_in(a)), 1.18 * static_cast<double>(bytes_in(b)));
  const VerifyReport report = verify_generation(b, {});
  EXPECT_TRUE(report.findings.empty()) << report.findings.front().text;
  const auto read = open_native(compressed.path());
  for (size_t i = 0; i < source.shards().size(); ++i) {
    const core::ShardedTensor tensor = source.shards()[i];
    // The whole tensor, and a block in its middle that spans both chunks of the first tensor.
    std::vector<std::byte> whole(source.bytes(i).size());
    const auto shard = static_cast<int32_t>(i);
    read->read(shard, core::Dims(tensor.local_shape.size(), 0), tensor.local_shape, whole.data());
    EXPECT_EQ(whole, source.bytes(i)) << tensor.key;
    if (tensor.local_shape.size() < 2) continue;
    const core::Dims offset = {3, 5}, extent = {tensor.local_shape[0] - 4, 7};
    std::vector<std::byte> seen(static_cast<size_t>(core::num_elements(extent) * core::size_of(tensor.dtype)));
    std::vector<std::byte> expected(seen.size());
    read->read(shard, offset, extent, seen.data());
    source.read(shard, offset, extent, expected.data());
    EXPECT_EQ(seen, expected) << tensor.key;
  }
  // Threads that finish in any order write the same file.
  const fs::path c = write(source, again.path(), true, 3);
  EXPECT_EQ(ms::test::read_file(b / "rank_00000.h5"), ms::test::read_file(c / "rank_00000.h5"));
  EXPECT_EQ(ms::test::read_file(b / "manifest.json"), ms::test::read_file(c / "manifest.json"));
}

// Writes wait for their turn in the file; if one will never come, the others must end.
TEST(Compression, FailedReadEndsLaterWrites) {
  class FailingSource final : public Source {
   public:
    const CheckpointInfo& info() const override { return weights_.info(); }
    const ShardTable& shards() const override { return weights_.shards(); }
    std::string describe(int32_t shard) const override { return weights_.describe(shard); }
    void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
      if (shard == 0 && offset[0] == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        throw core::Error(core::ErrorCode::kIo, "the first chunk cannot be read");
      }
      weights_.read(shard, offset, extent, out);
    }

   private:
    WeightsSource weights_;
  };
  FailingSource source;
  for (const int threads : {1, 3}) {
    TemporaryFolder folder;
    NativeSinkOptions options;
    options.root = folder.path();
    options.compress = true;
    const auto sink = make_native_sink(std::move(options));
    ExecuteOptions execution;
    execution.threads = threads;
    EXPECT_EQ(ms::test::code_of([&] { execute(source, *sink, source.info(), source.shards(), execution); }),
              core::ErrorCode::kIo);
    EXPECT_TRUE(list_generations(folder.path()).empty());
  }
}

TEST(Compression, EveryDamagedByteIsFoundAndNamed) {
  WeightsSource source;
  TemporaryFolder folder;
  const fs::path generation = write(source, folder.path(), true, 1), file = generation / "rank_00000.h5";
  const int64_t size = bytes_in(generation);
  // A prime stride over the whole file, finer at its start, where HDF5's structure is.
  for (int64_t at = 0; at < size; at += at < 4096 ? 131 : 400'009) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get());
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 0x10));
    stream.close();
    const VerifyReport report = verify_generation(generation, {});
    EXPECT_FALSE(report.findings.empty()) << "byte " << at;
    for (const Finding& finding : report.findings) EXPECT_EQ(finding.file, "rank_00000.h5");
    stream.open(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(at);
    stream.put(byte);
  }
  EXPECT_TRUE(verify_generation(generation, {}).findings.empty());
}

}  // namespace
}  // namespace ms::ckpt
