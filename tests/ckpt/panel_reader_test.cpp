// Column ranges of a matrix, read by way of panels that all threads share.
#include "ckpt/detail/panel_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "core/error.h"
#include "tests/ckpt/memory_source.h"
#include "tests/support/thrown.h"

namespace ms::ckpt {
namespace {

constexpr int64_t kRows = 3000, kColumns = 1024;  // 12 MiB of fp32: three panels

// Counts what is read; fails the first reads if asked to.
class CountingSource final : public Source {
 public:
  CountingSource() {
    std::vector<float> values(static_cast<size_t>(kRows * kColumns));
    std::iota(values.begin(), values.end(), 0.0f);
    held_.set("matrix", core::TensorRole::kParam, {kRows, kColumns}, values);
    held_.set("vector", core::TensorRole::kParam, {kColumns}, std::vector<float>(kColumns, 7.0f));
  }
  const CheckpointInfo& info() const override { return held_.info(); }
  const ShardTable& shards() const override { return held_.shards(); }
  std::string describe(int32_t shard) const override { return held_.describe(shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    if (failures-- > 0) throw core::Error(core::ErrorCode::kIo, "planted");
    ++reads;
    elements += core::num_elements(extent);
    held_.read(shard, offset, extent, out);
  }
  std::atomic<int64_t> reads{0}, elements{0}, failures{0};

 private:
  test::MemorySource held_;
};

void read_columns(detail::PanelReader& panels, int64_t first_row, int64_t rows, int64_t first, int64_t columns) {
  std::vector<float> out(static_cast<size_t>(rows * columns), -1.0f);
  panels.read_into(0, {first_row, first}, {rows, columns}, reinterpret_cast<std::byte*>(out.data()), {rows, columns},
                   {0, 0});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      ASSERT_EQ(out[static_cast<size_t>(row * columns + column)],
                static_cast<float>((first_row + row) * kColumns + first + column));
    }
  }
}

TEST(PanelReaderTest, NeighbouringColumnsReadEachRowOfTheSourceOnce) {
  CountingSource source;
  detail::PanelReader panels(source, int64_t{64} << 20, 4);
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < 4; ++part) {
    threads.emplace_back([&, part] { read_columns(panels, 0, kRows, part * kColumns / 4, kColumns / 4); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(source.elements, kRows * kColumns);
  EXPECT_EQ(source.reads, 3);
}

TEST(PanelReaderTest, ACacheOfFewPanelsGivesTheSameValues) {
  CountingSource source;
  detail::PanelReader panels(source, 0, 1);
  for (int64_t part = 0; part < 8; ++part) read_columns(panels, 100, 2500, part * 128, 128);
}

TEST(PanelReaderTest, BoxesOfWholeRowsAndVectorsGoToTheSource) {
  CountingSource source;
  detail::PanelReader panels(source, int64_t{64} << 20, 1);
  read_columns(panels, 10, 5, 0, kColumns);
  EXPECT_EQ(source.elements, 5 * kColumns);
  float out[3] = {};
  panels.read_into(1, {5}, {3}, reinterpret_cast<std::byte*>(out), {3}, {0});
  EXPECT_EQ(out[2], 7.0f);
  EXPECT_EQ(source.elements, 5 * kColumns + 3);
}

TEST(PanelReaderTest, AnErrorOfTheSourceIsThrownAndTheNextReadTriesAgain) {
  CountingSource source;
  detail::PanelReader panels(source, int64_t{64} << 20, 1);
  source.failures = 1;
  EXPECT_EQ(ms::test::thrown_by([&] { read_columns(panels, 0, 10, 0, 8); }).code, core::ErrorCode::kIo);
  read_columns(panels, 0, 10, 0, 8);
}

TEST(SourceTest, ReadIntoALargerTensorKeepsWhatIsAroundTheBox) {
  CountingSource source;
  const core::Dims shape{kRows, kColumns + 2};
  std::vector<float> out(static_cast<size_t>(core::num_elements(shape)), -1.0f);
  source.read_into(0, {0, 0}, {kRows, kColumns}, reinterpret_cast<std::byte*>(out.data()), shape, {0, 1});
  EXPECT_GT(source.reads, 1);  // in pieces: the buffer stays small
  for (int64_t row = 0; row < kRows; ++row) {
    const float* at = out.data() + row * (kColumns + 2);
    ASSERT_EQ(at[0], -1.0f);
    ASSERT_EQ(at[1], static_cast<float>(row * kColumns));
    ASSERT_EQ(at[kColumns], static_cast<float>((row + 1) * kColumns - 1));
    ASSERT_EQ(at[kColumns + 1], -1.0f);
  }
}

}  // namespace
}  // namespace ms::ckpt
