// The reader finds what a layout describes: boxes, objects, places; the bytes are always the same.
#include "convert/torch/dcp_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "convert/torch/dcp_reader.h"
#include "convert/torch/pickle_writer.h"
#include "convert/torch/torch_file.h"
#include "core/error.h"
#include "tests/support/files_of.h"
#include "tests/support/temporary_folder.h"

namespace ms::convert {
namespace {

std::string number_pickle(int64_t number) {
  return make_pickle([&](PickleWriter& pickle) { pickle.integer(number); });
}

constexpr int64_t kColumns = 20'000;  // of 4 bytes: its archive is page-aligned

// Three rows for two ranks, a number, an object.
class DcpLayoutTest : public ::testing::Test {
 protected:
  void write(const std::string& folder, bool paths) {
    DcpLayout layout;
    const auto path = [&](const DcpPath& steps) { return paths ? steps : DcpPath(); };
    const float step = 7;
    const size_t counter = layout.add_tensor("optim.step", SafetensorsDType::kF32, {}, path({"optim", "step"}));
    layout.add_chunk(counter, {}, {}, layout.file_of_rank(0),
                     std::string(reinterpret_cast<const char*>(&step), sizeof step));
    layout.add_object("optim.groups.0.lr", number_pickle(3), layout.file_of_rank(0),
                      path({"optim", "groups", int64_t{0}, "lr"}));
    const size_t rows = layout.add_tensor("model.rows", SafetensorsDType::kF32, {3, kColumns}, path({"model", "rows"}));
    ArchiveSinkOptions sink;
    sink.places.push_back(layout.add_chunk(rows, {0, 0}, {2, kColumns}, layout.file_of_rank(0)));
    sink.places.push_back(layout.add_chunk(rows, {2, 0}, {1, kColumns}, layout.file_of_rank(5)));
    sink.root = folder;
    sink.files = layout.take_files();
    sink.texts.emplace_back(".metadata", [layout] { return layout.metadata(); });
    const auto made = make_archive_sink(std::move(sink));
    const ckpt::ShardTable targets = {
        core::ShardedTensor{"rows", core::TensorRole::kParam, core::DType::kFp32, {3, kColumns}, {0, 0}, {2, kColumns}},
        core::ShardedTensor{
            "rows", core::TensorRole::kParam, core::DType::kFp32, {3, kColumns}, {2, 0}, {1, kColumns}}};
    made->begin({}, targets);
    made->write(1, 0, kColumns, bytes() + 2 * kColumns * 4);
    made->write(0, 0, 2 * kColumns, bytes());
    made->commit();
  }
  const std::byte* bytes() {
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    return reinterpret_cast<const std::byte*>(values_.data());
  }

  const test::TemporaryFolder folder_;
  std::vector<float> values_ = std::vector<float>(3 * kColumns);
};

TEST_F(DcpLayoutTest, ReaderFindsEveryEntry) {
  write(folder_ / "made", true);
  const DcpReader reader(folder_ / "made");
  ASSERT_EQ(reader.tensors().size(), 2u);
  const DcpReader::Tensor& rows = reader.tensors().at("model.rows");
  EXPECT_EQ(rows.shape, (core::Dims{3, kColumns}));
  ASSERT_EQ(rows.chunks.size(), 2u);
  std::vector<float> seen(3 * kColumns);
  for (const DcpReader::Chunk& chunk : rows.chunks) {
    EXPECT_EQ(chunk.payload.at % 4096, 0) << "a page";
    reader.read(rows, chunk, {0, 0}, chunk.extent,
                reinterpret_cast<std::byte*>(seen.data() + chunk.offset[0] * kColumns));
  }
  EXPECT_TRUE(seen == values_);
  EXPECT_THAT(reader.describe(rows.chunks[1].payload), ::testing::HasSubstr("__5_0.distcp"));
  const DcpReader::Tensor& step = reader.tensors().at("optim.step");
  float value = 0;
  reader.read(step, step.chunks.at(0), {}, {}, reinterpret_cast<std::byte*>(&value));
  EXPECT_EQ(value, 7);
  EXPECT_EQ(reader.open_object(reader.objects().at("optim.groups.0.lr")).root().integer(), 3);
}

TEST_F(DcpLayoutTest, PathsAreWrittenIfGiven) {
  for (const bool paths : {true, false}) {
    const std::string folder = folder_ / (paths ? "nested" : "flat");
    write(folder, paths);
    const std::string text = test::read_file(folder + "/.metadata");
    const Pickle pickle(text, "test");
    const auto state = pickle.root().state();
    ASSERT_TRUE(state);
    const auto said = state->find("planner_data");
    ASSERT_EQ(said.has_value(), paths);
    if (!paths) continue;
    const auto path = said->find("optim.groups.0.lr");
    ASSERT_TRUE(path);
    EXPECT_EQ(path->items().at(2).integer(), 0);
    EXPECT_EQ(path->items().at(3).text(), "lr");
  }
}

TEST_F(DcpLayoutTest, BytesAreDeterministic) {
  write(folder_ / "one", true);
  write(folder_ / "two", true);
  EXPECT_TRUE(test::files_of(folder_ / "one") == test::files_of(folder_ / "two"));
}

}  // namespace
}  // namespace ms::convert
