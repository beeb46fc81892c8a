// FSDP rank files written by genuine torch (tests/data/make_fsdp_ranks.py), merged; and sets of files that contradict
// each other.
#include "convert/torch/rank_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "convert/named.h"
#include "core/error.h"
#include "tests/convert/torch/dtensor_pickle.h"
#include "tests/convert/whole_tensor.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

using core::ErrorCode;
using core::TensorRole;
using testing::Contains;
using testing::HasSubstr;

const std::string kFolder = core::cat(MS_TEST_DATA, "/fsdp_ranks/");

void expect_equal(ckpt::Source& source, TensorRole role, const std::string& expected) {
  const auto whole = open_safetensors(kFolder + "expected/" + expected + ".safetensors");
  ASSERT_GT(whole->size(), 4U);
  size_t of_role = 0;
  for (size_t t = 0; t < source.shards().num_tensors(); ++t) {
    of_role += source.shards().role(static_cast<int32_t>(t)) == role;
  }
  EXPECT_EQ(of_role, whole->size());
  for (size_t i = 0; i < whole->size(); ++i) {
    const TensorFile::Tensor tensor = (*whole)[i];
    std::vector<std::byte> wanted(tensor.end - tensor.begin);
    whole->read(tensor.begin, wanted);
    EXPECT_EQ(test::whole_tensor(source, std::string(tensor.name), role), wanted) << tensor.name;
  }
}

TEST(RankFiles, OneMeshAxisIsMerged) {
  std::vector<std::string> decisions;
  const auto source = open_named(kFolder + "shard_2", false, decisions);
  EXPECT_FALSE(source->info().has_model);
  expect_equal(*source, TensorRole::kParam, "shard_2");
  expect_equal(*source, TensorRole::kExpAvg, "shard_2_exp_avg");
  expect_equal(*source, TensorRole::kExpAvgSq, "shard_2_exp_avg_sq");
  EXPECT_EQ(test::whole_tensor(*source, "optim.state.embed.weight.step", TensorRole::kBuffer).size(), sizeof(float));
  EXPECT_THAT(decisions, Contains(HasSubstr("extra_state_world_size_2_rank_0.pt")));
}

TEST(RankFiles, DropOptimizerLeavesOutOptimizerState) {
  std::vector<std::string> decisions;
  const auto source = open_named(kFolder + "shard_2", true, decisions);
  expect_equal(*source, TensorRole::kParam, "shard_2");
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kExpAvg));
  EXPECT_FALSE(ckpt::has_role(*source, TensorRole::kBuffer));
}

TEST(RankFiles, ReplicasOfShardsAreMerged) {
  std::vector<std::string> decisions;
  expect_equal(*open_named(kFolder + "hsdp_4", false, decisions), TensorRole::kParam, "hsdp_4");
}

TEST(RankFiles, FsdpOverTensorParallelismIsMerged) {
  std::vector<std::string> decisions;
  expect_equal(*open_named(kFolder + "tp_4", false, decisions), TensorRole::kParam, "tp_4");
}

class ChangedRankFiles : public testing::Test {
 protected:
  void copy(const std::string& of) {
    std::filesystem::copy(kFolder + of, folder_.path(), std::filesystem::copy_options::recursive);
  }
  std::string file(int rank, int ranks = 2) const {
    return folder_ / core::cat("model_world_size_", ranks, "_rank_", rank, ".pt");
  }
  // w [6, 3], cut by rows over two ranks.
  void write(int rank, const std::function<void(test::PickledDTensor&)>& change = {}) {
    test::PickledDTensor tensor = {.shape = {6, 3},
                                   .local_shape = {3, 3},
                                   .mesh_shape = {2},
                                   .mesh_stride = {1},
                                   .ranks = {0, 1},
                                   .placements = {{}}};
    if (change) change(tensor);
    test::write_file(file(rank), test::dtensor_file(tensor, static_cast<float>(9 * rank)));
  }
  void expect_refused(ErrorCode code, const std::string& text) {
    std::vector<std::string> decisions;
    const test::Thrown thrown = test::thrown_by([&] { open_named(folder_.path().string(), false, decisions); });
    EXPECT_EQ(thrown.code, code) << thrown.text;
    EXPECT_THAT(thrown.text, HasSubstr(text));
    EXPECT_THAT(thrown.text, testing::Not(HasSubstr("\n")));
  }
  test::TemporaryFolder folder_;
};

TEST_F(ChangedRankFiles, ShardsAreMergedByRank) {
  write(0);
  write(1);
  std::vector<std::string> decisions;
  const auto source = open_named(folder_.path().string(), false, decisions);
  const auto bytes = test::whole_tensor(*source, "w", TensorRole::kParam);
  std::vector<float> values(18);
  ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
}

TEST_F(ChangedRankFiles, MissingRankIsRefused) {
  copy("hsdp_4");
  std::filesystem::remove(file(2, 4));
  expect_refused(ErrorCode::kCorruptData,
                 "model_world_size_4_rank_2.pt is missing: there are files of 3 of the 4 ranks");
}

TEST_F(ChangedRankFiles, FilesOfTwoJobsAreRefused) {
  copy("hsdp_4");
  copy("shard_2");
  expect_refused(ErrorCode::kInvalidArgument, "files of jobs with 2 and with 4 ranks");
}

TEST_F(ChangedRankFiles, MeshThatContradictsTheNumberOfFilesIsRefused) {
  for (const int rank : {0, 1}) {
    write(rank, [](test::PickledDTensor& tensor) {
      tensor.local_shape = {2, 3};
      tensor.mesh_shape = {3};
      tensor.ranks = {0, 1, 2};
    });
  }
  expect_refused(ErrorCode::kCorruptData, "has rank 2, but by the file names there are only 2 ranks");
}

TEST_F(ChangedRankFiles, DifferentPlacementsAreRefused) {
  write(0);
  write(1, [](test::PickledDTensor& tensor) {
    tensor.local_shape = {6, 1};
    tensor.placements = {{"Shard", 1}};
  });
  expect_refused(ErrorCode::kCorruptData, "w");
}

TEST_F(ChangedRankFiles, DifferentShapesAreRefused) {
  write(0);
  write(1, [](test::PickledDTensor& tensor) { tensor.shape = {5, 3}, tensor.local_shape = {2, 3}; });
  expect_refused(ErrorCode::kCorruptData, "\"w\" has shape [5, 3] here, but [6, 3] on another rank");
}

TEST_F(ChangedRankFiles, DifferentReplicasAreRefused) {
  const auto replicated = [](test::PickledDTensor& tensor) {
    tensor.local_shape = {6, 3};
    tensor.placements = {{"Replicate"}};
  };
  write(0, replicated);
  write(1, replicated);  // begins with 9
  expect_refused(ErrorCode::kCorruptData, "ranks 0 and 1 hold the same part of it");
}

TEST_F(ChangedRankFiles, FifoInPlaceOfAFileDoesNotHang) {
  write(0);
  ASSERT_EQ(::mkfifo(file(1).c_str(), 0600), 0);
  expect_refused(ErrorCode::kInvalidArgument, "not a regular file");
}

TEST_F(ChangedRankFiles, PickledCallsAreNotExecuted) {
  write(0);
  const std::string marker = folder_ / "ran";
  const std::string pickle = make_pickle([&](PickleWriter& p) {
    p.dict([&] {
      p.text("w");
      p.call("os", "system", [&] { p.text("touch " + marker); });
    });
  });
  test::write_file(file(1), make_torch_archive(pickle, {}));
  expect_refused(ErrorCode::kCorruptData, "w");
  EXPECT_FALSE(std::filesystem::exists(marker));
}

TEST(RankFiles, SignNamesTheFirstFile) {
  EXPECT_EQ(rank_files_sign(kFolder + "hsdp_4"), "model_world_size_4_rank_0.pt");
  EXPECT_EQ(rank_files_sign(kFolder), "");
}

}  // namespace
}  // namespace ms::convert
