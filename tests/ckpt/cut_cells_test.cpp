#include "ckpt/detail/cut_cells.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "ckpt/detail/rank_file.h"
#include "ckpt/logical_hash.h"
#include "core/error.h"
#include "core/sharded_tensor.h"
#include "tests/support/random_values.h"
#include "tests/support/temporary_folder.h"

namespace ms::ckpt {
namespace {

// Rows of `width` elements, cut into parts whose ends split cells: boxes 0, 1, .. of one file.
struct CutTensor {
  static constexpr int64_t kRows = 3000, kWidth = 200, kPart = 25;
  std::vector<float> values = test::RandomValues(3).make(kRows * kWidth);

  core::ShardedTensor part(int64_t index) const {
    return {"w", core::TensorRole::kParam, core::DType::kFp32, {kRows, kWidth}, {0, index * kPart}, {kRows, kPart}, 0};
  }
  LogicalPartial partial(int64_t index, int64_t first_row, int64_t rows) const {
    std::vector<float> dense;
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      const auto begin = values.begin() + row * kWidth + index * kPart;
      dense.insert(dense.end(), begin, begin + kPart);
    }
    LogicalPartial result;
    add_logical(part(index), first_row * kPart, rows * kPart, reinterpret_cast<const std::byte*>(dense.data()), result);
    return result;
  }
  uint64_t hash_of_whole() const {
    const core::ShardedTensor whole{
        "w", core::TensorRole::kParam, core::DType::kFp32, {kRows, kWidth}, {0, 0}, {kRows, kWidth}, 0};
    LogicalPartial result;
    add_logical(whole, 0, kRows * kWidth, reinterpret_cast<const std::byte*>(values.data()), result);
    return finish_logical(core::DType::kFp32, {kRows, kWidth}, result);
  }
};

TEST(CutCellsTest, WriterAndReaderRoundTrip) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "cells";
  const CutTensor tensor;
  LogicalPartial merged;
  CutCellsWriter writer(path, kCutCellsBytes);
  for (int64_t row = 0; row < CutTensor::kRows; row += 100) {  // the boxes alternate, as in a reshard
    for (int32_t box = 0; box < 8; ++box) {
      LogicalPartial partial = tensor.partial(box, row, 100);
      writer.take(box, partial);
      EXPECT_TRUE(partial.pieces.empty() && partial.bytes.empty());
      merged.merge(partial);
    }
  }
  std::vector<LogicalPartial> none;
  ASSERT_TRUE(writer.finish(none));
  EXPECT_GT(std::filesystem::file_size(path), 3 * static_cast<uint64_t>(kCutCellsBytes));
  const CutCellsReader reader(path);
  reader.check();
  for (int32_t box = 7; box >= 0; --box) reader.put_back(box, merged);
  reader.put_back(8, merged);
  EXPECT_EQ(finish_logical(core::DType::kFp32, {CutTensor::kRows, CutTensor::kWidth}, merged), tensor.hash_of_whole());
}

TEST(CutCellsTest, FewPiecesStayInMemory) {
  const test::TemporaryFolder folder;
  CutCellsWriter writer(folder / "cells", kCutCellsBytes);
  const LogicalPartial expected = CutTensor().partial(1, 0, 10);
  std::vector<LogicalPartial> of_box(2);
  of_box[1] = expected;
  writer.take(1, of_box[1]);
  EXPECT_TRUE(of_box[1].pieces.empty());
  EXPECT_EQ(of_box[1].sum, expected.sum);
  EXPECT_FALSE(writer.finish(of_box));
  EXPECT_EQ(of_box[1].pieces.size(), expected.pieces.size());
  EXPECT_EQ(of_box[1].bytes, expected.bytes);
  EXPECT_TRUE(of_box[0].pieces.empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "cells"));
}

TEST(CutCellsTest, DamagedFileIsRefused) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "cells";
  {
    CutCellsWriter writer(path, 0);
    LogicalPartial partial = CutTensor().partial(1, 0, 10);
    writer.take(1, partial);
    std::vector<LogicalPartial> none;
    ASSERT_TRUE(writer.finish(none));
  }
  const std::string good = test::read_file(path);
  const auto refuses = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    try {
      CutCellsReader(path).check();
    } catch (const core::Error& e) {
      return e.code() == core::ErrorCode::kCorruptData;
    }
    return false;
  };
  for (size_t at = 8; at < good.size(); at += 5) {  // the hash does not cover the box number
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_TRUE(refuses(bad)) << at;
  }
  for (size_t size = 1; size < good.size(); size += 7) EXPECT_TRUE(refuses(good.substr(0, size))) << size;
  EXPECT_FALSE(refuses(good));
}

TEST(CutCellsTest, RankFileStoresPiecesInItsOwnFile) {
  const test::TemporaryFolder folder;
  const CutTensor tensor;
  const core::ShardedTensor part = tensor.part(3);
  std::vector<float> dense;
  for (int64_t row = 0; row < CutTensor::kRows; ++row) {
    const auto begin = tensor.values.begin() + row * CutTensor::kWidth + 3 * CutTensor::kPart;
    dense.insert(dense.end(), begin, begin + CutTensor::kPart);
  }
  for (const bool spills : {false, true}) {
    RankFile::Options options;
    options.cut_cells_bytes = spills ? 1000 : INT64_MAX;
    RankFile file(folder.path().string(), spills ? 1 : 0, {part}, options);
    file.write(0, 0, static_cast<int64_t>(dense.size()), reinterpret_cast<const std::byte*>(dense.data()));
    RankFileRecord record = file.finish(nullptr);
    EXPECT_EQ(record.cut_cells, spills ? "rank_00001.cells" : "");
    EXPECT_EQ(record.logical[0].pieces.empty(), spills);
    if (spills) CutCellsReader(folder / record.cut_cells).put_back(0, record.logical[0]);
    const LogicalPartial expected = tensor.partial(3, 0, CutTensor::kRows);
    EXPECT_EQ(record.logical[0].sum, expected.sum);
    EXPECT_EQ(record.logical[0].pieces.size(), expected.pieces.size());
    EXPECT_EQ(record.logical[0].bytes, expected.bytes);
  }
}

}  // namespace
}  // namespace ms::ckpt
