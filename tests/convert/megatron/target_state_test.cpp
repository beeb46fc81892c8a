// What a Megatron checkpoint holds besides tensors, and where it appears.
#include "convert/megatron/target_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "convert/detect.h"
#include "convert/megatron/iterations.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::DType;
using core::TensorRole;
using ::testing::Contains;
using ::testing::Pair;

std::unique_ptr<ckpt::Source> tree(const char* name) {
  return open_source(core::cat(MS_TEST_DATA, "/megatron/", name));
}

TEST(TargetStateTest, MastersAndWeightsOfAnFp32ModelAreTheSame) {
  const auto half = tree("qk_norm_tp2_bf16"), full = tree("gelu_vpp2_fp32");
  const std::string key = "embedding.word_embeddings.weight";
  EXPECT_EQ(filled_from(*half, true, key, TensorRole::kMaster, DType::kFp32), TensorRole::kMaster);
  EXPECT_EQ(filled_from(*half, true, key, TensorRole::kParam, DType::kBf16), TensorRole::kParam);
  EXPECT_EQ(filled_from(*half, true, key, TensorRole::kParam, DType::kFp32), TensorRole::kMaster)
      << "what it came from";
  EXPECT_EQ(filled_from(*half, false, key, TensorRole::kParam, DType::kFp32), TensorRole::kParam);
  EXPECT_EQ(filled_from(*full, true, key, TensorRole::kMaster, DType::kFp32), TensorRole::kParam);
  EXPECT_EQ(filled_from(*full, true, key, TensorRole::kExpAvg, DType::kFp32), TensorRole::kExpAvg);
}

TEST(TargetStateTest, ArgsSayTheLayoutAndWhatIsNotThere) {
  const auto source = tree("qk_norm_tp2_bf16");
  MegatronTargetOptions options;
  options.layout.tensor_model_parallel_size = 2;
  options.make_vocab_size_divisible_by = 5;
  const MegatronModel model = megatron_target_model(*source, options);
  const auto dtype = [](const std::string&) { return DType::kBf16; };
  std::vector<std::string> decisions;
  const MegatronTargetState weights = plan_target_state(*source, options, model, dtype, decisions);
  EXPECT_EQ(weights.optimizer, MegatronOptimizerForm::kNone);
  EXPECT_THAT(weights.args, Contains(Pair("tensor_model_parallel_size", MegatronArg(int64_t{2}))));
  EXPECT_THAT(weights.args, Contains(Pair("padded_vocab_size", MegatronArg(int64_t{20}))));
  EXPECT_THAT(weights.args, Contains(Pair("no_save_optim", MegatronArg(true))));
  EXPECT_THAT(weights.args, Contains(Pair("no_save_rng", MegatronArg(true))));
  options.with_optimizer = options.use_distributed_optimizer = true;
  const MegatronTargetState all = plan_target_state(*source, options, model, dtype, decisions);
  EXPECT_EQ(all.optimizer, MegatronOptimizerForm::kDistributed);
  EXPECT_EQ(all.step, 3);
  EXPECT_EQ(all.adam.eps, 1e-8);
  EXPECT_THAT(all.args, Contains(Pair("no_save_optim", MegatronArg(false))));
}

TEST(TargetStateTest, TheTrackerFollows) {
  const test::TemporaryFolder folder;
  MegatronTargetOptions options;
  options.root = folder.path().string();
  ArchiveSinkOptions sink;
  place_iteration(options, 12, sink);
  EXPECT_EQ(sink.folder, folder.path() / "iter_0000012");
  EXPECT_TRUE(fs::is_empty(folder.path()));
  sink.committed();
  EXPECT_EQ(test::read_file(folder / kMegatronTracker), "12");
  place_iteration(options, 0, sink);
  EXPECT_EQ(sink.folder, folder.path() / kMegatronRelease);
  sink.committed();
  EXPECT_EQ(test::read_file(folder / kMegatronTracker), "release");
  fs::create_directory(folder / "iter_0000012");
  EXPECT_EQ(test::code_of([&] { place_iteration(options, 12, sink); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::convert
