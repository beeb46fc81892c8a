// Any range of a tensor that DCP stores in shards, cut by rows or by columns, equals that of the whole tensor; shards
// that do not tile it are refused.
#include "convert/torch/dcp_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ckpt/shard_table.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

// Made by tests/data/make_dcp_fsdp.py.
const std::string kFolder = core::cat(MS_TEST_DATA, "/dcp_fsdp");

TEST(DcpTensors, ReadsEveryRangeOfEveryTensor) {
  const auto sharded = open_dcp_tensors(std::make_shared<DcpReader>(kFolder));
  const auto whole = open_safetensors(kFolder + "/expected/param/model.safetensors");
  ASSERT_GT(whole->size(), 10U);
  int64_t by_columns = 0;
  for (size_t i = 0; i < whole->size(); ++i) {
    const TensorFile::Tensor wanted = (*whole)[i];
    const auto found = sharded->find(core::cat("model.", wanted.name));
    ASSERT_TRUE(found.has_value()) << wanted.name;
    const TensorFile::Tensor seen = (*sharded)[*found];
    ASSERT_EQ(seen.dtype, wanted.dtype);
    ASSERT_TRUE(std::ranges::equal(seen.shape, wanted.shape)) << wanted.name;
    ASSERT_EQ(seen.end - seen.begin, wanted.end - wanted.begin);
    by_columns += wanted.name.ends_with("o_proj.weight") || wanted.name.ends_with("down_proj.weight");
    const uint64_t elements = (wanted.end - wanted.begin) / 4;
    std::vector<std::byte> all(elements * 4);
    whole->read(wanted.begin, all);
    for (uint64_t first = 0; first < elements; first += 3) {
      for (uint64_t count = 1; count <= elements - first; count += 7) {
        std::vector<std::byte> part(count * 4);
        sharded->read(seen.begin + first * 4, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(first * 4)))
            << wanted.name << ": " << count << " elements from " << first;
      }
    }
  }
  EXPECT_EQ(by_columns, 2) << "tensors that the script cuts by columns";
  EXPECT_FALSE(sharded->find("model.nothing").has_value());
}

// A tensor [2, 4, 3] of 0, 1, .. in these boxes.
std::unique_ptr<TensorFile> open_stack(const std::string& folder, const std::vector<layout::Box>& boxes) {
  DcpLayout layout;
  const core::Dims shape = {2, 4, 3};
  const size_t stack = layout.add_tensor("stack", SafetensorsDType::kF32, shape);
  ArchiveSinkOptions sink;
  ckpt::ShardTable targets;
  for (const layout::Box& box : boxes) {
    sink.places.push_back(layout.add_chunk(stack, box.offset, box.extent, layout.file_of_rank(0)));
    targets.push_back({"stack", core::TensorRole::kParam, core::DType::kFp32, shape, box.offset, box.extent});
  }
  sink.root = folder;
  sink.files = layout.take_files();
  sink.texts.emplace_back(".metadata", [layout] { return layout.metadata(); });
  const auto made = make_archive_sink(std::move(sink));
  made->begin({}, targets);
  for (size_t b = 0; b < boxes.size(); ++b) {
    std::vector<float> values;
    for (int64_t i = 0; i < core::num_elements(boxes[b].extent); ++i) {
      const core::Dims& extent = boxes[b].extent;
      const core::Dims at = {boxes[b].offset[0] + i / (extent[1] * extent[2]),
                             boxes[b].offset[1] + i / extent[2] % extent[1], boxes[b].offset[2] + i % extent[2]};
      values.push_back(static_cast<float>(layout::flat_index(shape, at)));
    }
    made->write(static_cast<int32_t>(b), 0, static_cast<int64_t>(values.size()),
                reinterpret_cast<const std::byte*>(values.data()));
  }
  made->commit();
  return open_dcp_tensors(std::make_shared<DcpReader>(folder));
}

TEST(DcpTensors, ReadsEveryRangeOfAStackOfMatrices) {
  const test::TemporaryFolder folder;
  const std::vector<layout::Box> cuts[] = {{{{0, 0, 0}, {1, 4, 3}}, {{1, 0, 0}, {1, 4, 3}}},
                                           {{{0, 0, 0}, {2, 4, 2}}, {{0, 0, 2}, {2, 4, 1}}}};
  for (size_t cut = 0; cut < std::size(cuts); ++cut) {
    const auto file = open_stack(folder / std::to_string(cut), cuts[cut]);
    for (uint64_t first = 0; first < 24; ++first) {
      for (uint64_t count = 1; count <= 24 - first; ++count) {
        std::vector<float> seen(count);
        file->read((*file)[0].begin + first * 4, std::as_writable_bytes(std::span(seen)));
        for (uint64_t i = 0; i < count; ++i) {
          ASSERT_EQ(seen[i], static_cast<float>(first + i)) << "cut " << cut << ": " << count << " from " << first;
        }
      }
    }
  }
  const test::Thrown thrown = test::thrown_by([&] {
    open_stack(folder / "rows", {{{0, 0, 0}, {2, 1, 3}}, {{0, 1, 0}, {2, 3, 3}}});
  });
  EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
  EXPECT_THAT(thrown.text, testing::HasSubstr("cut by their rows"));
}

}  // namespace
}  // namespace ms::convert
