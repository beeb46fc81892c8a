// DTensors: the boxes of the global tensor that a rank holds, compared with torch's own cuts, and what is refused.
#include "convert/torch/dtensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/convert/torch/dtensor_pickle.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::Dims;
using core::ErrorCode;
using testing::HasSubstr;
using Kind = DTensorPlacement::Kind;

// A tensor [length] on a mesh, with the correct local length on each rank.
DTensor tensor_on(std::vector<int64_t> mesh, std::vector<DTensorPlacement> placements, uint64_t length) {
  auto made = std::make_shared<DTensorMesh>();
  int64_t ranks = 1;
  for (const int64_t axis : mesh) ranks *= axis;
  for (int64_t rank = 0; rank < ranks; ++rank) made->ranks.push_back(rank);
  made->shape = std::move(mesh);
  DTensor tensor;
  tensor.shape = {length};
  tensor.mesh = std::move(made);
  tensor.placements = std::move(placements);
  return tensor;
}

// Returns the indices that a rank holds; tries local lengths until one fits.
std::vector<int64_t> indices(DTensor tensor, int64_t rank) {
  for (uint64_t local = 0; local <= tensor.shape[0]; ++local) {
    tensor.local.shape = {local};
    std::vector<DTensorBox> boxes;
    try {
      boxes = boxes_on_rank(tensor, rank, "x.pt");
    } catch (const core::Error&) {
      continue;
    }
    std::vector<int64_t> held;
    for (const DTensorBox& box : boxes) {
      EXPECT_EQ(box.held_at[0], static_cast<int64_t>(held.size()));
      for (int64_t i = 0; i < box.extent[0]; ++i) held.push_back(box.offset[0] + i);
    }
    return held;
  }
  ADD_FAILURE() << "no length fits";
  return {};
}

using Held = std::vector<int64_t>;

TEST(DTensorBoxes, ShardMatchesTorchChunk) {
  const DTensor tensor = tensor_on({4}, {{Kind::kShard, 0, 1}}, 9);  // chunks of 3: the last rank has none
  EXPECT_EQ(indices(tensor, 0), (Held{0, 1, 2}));
  EXPECT_EQ(indices(tensor, 2), (Held{6, 7, 8}));
  EXPECT_EQ(indices(tensor, 3), Held{});
}

TEST(DTensorBoxes, ReplicasHaveTheSameBoxes) {
  const DTensor tensor = tensor_on({2, 2}, {{}, {Kind::kShard, 0, 1}}, 5);
  for (const int64_t rank : {0, 2}) EXPECT_EQ(indices(tensor, rank), (Held{0, 1, 2}));
  for (const int64_t rank : {1, 3}) EXPECT_EQ(indices(tensor, rank), (Held{3, 4}));
}

TEST(DTensorBoxes, ShardsOfOneAxisApplyFromLeftToRight) {
  const DTensor tensor = tensor_on({2, 2}, {{Kind::kShard, 0, 1}, {Kind::kShard, 0, 1}}, 10);
  EXPECT_EQ(indices(tensor, 1), (Held{3, 4}));
  EXPECT_EQ(indices(tensor, 2), (Held{5, 6, 7}));
}

// FSDP over tensor parallelism: the factor is the size of the axis to the right, which has cut first.
TEST(DTensorBoxes, StridedShardAppliesAfterTheAxisToItsRight) {
  const DTensor tensor = tensor_on({2, 2}, {{Kind::kStridedShard, 0, 2}, {Kind::kShard, 0, 1}}, 9);
  EXPECT_EQ(indices(tensor, 0), (Held{0, 1, 2}));  // of the first half, 0 to 4
  EXPECT_EQ(indices(tensor, 1), (Held{5, 6}));     // of the second half, 5 to 8
  EXPECT_EQ(indices(tensor, 2), (Held{3, 4}));
  EXPECT_EQ(indices(tensor, 3), (Held{7, 8}));
}

TEST(DTensorBoxes, StridedShardAloneHasSeveralPieces) {
  const DTensor tensor = tensor_on({2}, {{Kind::kStridedShard, 0, 2}}, 8);
  EXPECT_EQ(indices(tensor, 0), (Held{0, 1, 4, 5}));
  EXPECT_EQ(indices(tensor, 1), (Held{2, 3, 6, 7}));
}

TEST(DTensorBoxes, WrongLocalShapeIsRefused) {
  DTensor tensor = tensor_on({2}, {{Kind::kShard, 0, 1}}, 8);
  tensor.local.shape = {3};
  const test::Thrown thrown = test::thrown_by([&] { boxes_on_rank(tensor, 0, "x.pt"); });
  EXPECT_EQ(thrown.code, ErrorCode::kCorruptData);
  EXPECT_THAT(thrown.text, HasSubstr("has a part of shape [3] on rank 0, but mesh and placements give it [4]"));
  EXPECT_THAT(test::thrown_by([&] { boxes_on_rank(tensor, 5, "x.pt"); }).text, HasSubstr("does not contain it"));
}

class PickledDTensorTest : public testing::Test {
 protected:
  std::optional<DTensor> read(const std::string& bytes) {
    test::write_file(folder_ / "x.pt", bytes);
    file_ = std::make_unique<TorchFile>(folder_ / "x.pt");
    return DTensorReader(*file_).read(*file_->root().find("w"));
  }
  void expect_refused(const test::PickledDTensor& tensor, ErrorCode code, const std::string& text) {
    const test::Thrown thrown = test::thrown_by([&] { read(test::dtensor_file(tensor)); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(text));
    EXPECT_THAT(thrown.text, testing::Not(HasSubstr("\n")));
  }
  test::TemporaryFolder folder_;
  std::unique_ptr<TorchFile> file_;
  test::PickledDTensor good_ = {.shape = {6, 3},
                                .local_shape = {3, 3},
                                .mesh_shape = {2},
                                .mesh_stride = {1},
                                .ranks = {0, 1},
                                .placements = {{}}};
};

TEST_F(PickledDTensorTest, MeshAndPlacementsAreRead) {
  test::PickledDTensor written = good_;
  written.mesh_shape = {2, 2};
  written.mesh_stride = {2, 1};
  written.ranks = {0, 1, 2, 3};
  written.placements = {{"_StridedShard", 0, 2}, {"Shard", 0}};
  const auto tensor = read(test::dtensor_file(written));
  ASSERT_TRUE(tensor.has_value());
  EXPECT_THAT(tensor->shape, testing::ElementsAre(6, 3));
  EXPECT_THAT(tensor->mesh->ranks, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(tensor->mesh->shape, testing::ElementsAre(2, 2));
  EXPECT_EQ(tensor->placements[0].kind, Kind::kStridedShard);
  EXPECT_EQ(tensor->placements[0].split_factor, 2);
  EXPECT_EQ(tensor->placements[1].kind, Kind::kShard);
}

TEST_F(PickledDTensorTest, ContradictionsAreRefused) {
  auto tensor = good_;
  tensor.placements = {{"Shard", 2}};
  expect_refused(tensor, ErrorCode::kCorruptData, "cut along an axis it does not have");
  tensor = good_;
  tensor.placements = {{}, {}};
  expect_refused(tensor, ErrorCode::kCorruptData, "2 placements on a mesh of 1 axes");
  tensor = good_;
  tensor.placements = {{"Partial"}};
  expect_refused(tensor, ErrorCode::kUnsupported, "Partial");
  tensor = good_;
  tensor.meta_shape = {7, 3};
  expect_refused(tensor, ErrorCode::kCorruptData, "tensor_meta");
  tensor = good_;
  tensor.ranks = {0};
  expect_refused(tensor, ErrorCode::kCorruptData, "over 1 ranks");
  tensor = good_;
  tensor.ranks = {1, 1};
  expect_refused(tensor, ErrorCode::kCorruptData, "twice");
  tensor = good_;
  tensor.placements = {{"_StridedShard", 0, int64_t{1} << 40}};
  expect_refused(tensor, ErrorCode::kCorruptData, "split factor");
}

TEST_F(PickledDTensorTest, OversizedMeshIsRefusedWithoutAllocation) {
  auto tensor = good_;
  tensor.mesh_shape = {1 << 19, 1 << 19, 1 << 19};
  tensor.mesh_stride = {1, 1, 1};
  tensor.placements = {{}, {}, {}};
  expect_refused(tensor, ErrorCode::kCorruptData, "axis of 524288 ranks");
}

TEST_F(PickledDTensorTest, OtherValuesAreNotDTensors) {
  const std::string pickle = make_pickle([](PickleWriter& p) {
    p.dict([&] {
      p.text("w");
      p.call("os", "system", [&] { p.text("true"); });
    });
  });
  EXPECT_FALSE(read(make_torch_archive(pickle, {})).has_value());
}

}  // namespace
}  // namespace ms::convert
