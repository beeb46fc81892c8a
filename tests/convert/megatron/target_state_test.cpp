// The non-tensor content of a Megatron checkpoint, and its folder.
#include "convert/megatron/target_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "convert/dcp.h"
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
using ::testing::HasSubstr;
using ::testing::Pair;

std::unique_ptr<ckpt::Source> tree(const char* name) {
  return open_source(core::cat(MS_TEST_DATA, "/megatron/", name));
}

TEST(TargetStateTest, Fp32WeightsAreFilledFromMasters) {
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

TEST(TargetStateTest, ArgsContainLayoutAndMarkMissingState) {
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
  EXPECT_EQ(all.decayed.eps, 1e-8);
  EXPECT_THAT(all.args, Contains(Pair("no_save_optim", MegatronArg(false))));
}

// An FSDP checkpoint with settings modified by a test.
class FromFsdp final : public ckpt::Source {
 public:
  explicit FromFsdp(const std::function<void(nlohmann::json& common)>& change = [](auto&) {}) {
    std::vector<std::string> decisions;
    const std::string folder = core::cat(MS_TEST_DATA, "/dcp_fsdp");
    source_ = open_dcp(folder, {folder + "/expected/param", false}, decisions);
    info_ = source_->info();
    change(info_.common);
  }
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return source_->shards(); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(shard, offset, extent, out);
  }
  std::string describe(int32_t shard) const override { return source_->describe(shard); }

  MegatronTargetState plan() const {
    MegatronTargetOptions options;
    options.with_optimizer = true;
    std::vector<std::string> decisions;
    return plan_target_state(
        *this, options, megatron_target_model(*this, options), [](const std::string&) { return DType::kFp32; },
        decisions);
  }

 private:
  std::unique_ptr<ckpt::Source> source_;
  ckpt::CheckpointInfo info_;
};

TEST(TargetStateTest, RateWithoutSchedulerStaysConstant) {
  const MegatronTargetState state = FromFsdp().plan();
  EXPECT_EQ(state.scheduler.at("max_lr"), 1e-2);
  EXPECT_EQ(state.scheduler.at("min_lr"), 1e-2);
  EXPECT_EQ(state.scheduler.at("lr_decay_style"), "constant");
  EXPECT_EQ(state.scheduler.at("start_wd"), 1e-2);
  EXPECT_EQ(state.decayed.lr, 1e-2);
  EXPECT_EQ(state.decayed.max_lr, std::nullopt) << "a group's would count before a run's own schedule";
  EXPECT_EQ(state.decayed.weight_decay, 1e-2);
  EXPECT_EQ(state.other.weight_decay, 0.0);
}

TEST(TargetStateTest, StateThatMegatronCannotLoadIsRefusedWithTheCure) {
  const auto refusal = [](const std::function<void(nlohmann::json&)>& change) {
    const test::Thrown thrown = test::thrown_by([&] { FromFsdp(change).plan(); });
    EXPECT_EQ(thrown.code, core::ErrorCode::kUnsupported);
    return thrown.text;
  };
  const auto group = [](nlohmann::json& common) -> nlohmann::json& { return common["optimizer"]["groups"][0]; };
  EXPECT_THAT(refusal([&](auto& common) { group(common).erase("lr"); }), HasSubstr("give --lr"));
  EXPECT_THAT(refusal([&](auto& common) { group(common).erase("beta1"); }), HasSubstr("give --adam-beta1"));
  EXPECT_THAT(refusal([&](auto& common) { group(common)["initial_lr"] = 0.1; }), HasSubstr("--lr-decay-style"))
      << "a scheduler of torch.optim";
  EXPECT_THAT(refusal([&](auto& common) { common["lr_scheduler"]["type"] = "WarmupLR"; }),
              HasSubstr("--global-batch-size"));
}

TEST(TargetStateTest, TrackerNamesTheIteration) {
  using Pointers = std::vector<std::pair<std::string, std::string>>;
  const test::TemporaryFolder folder;
  MegatronTargetOptions options;
  options.root = folder.path().string();
  ArchiveSinkOptions sink;
  place_iteration(options, 12, sink);
  EXPECT_EQ(sink.root, folder.path());
  EXPECT_EQ(sink.folder, "iter_0000012");
  EXPECT_EQ(sink.pointers, (Pointers{{kMegatronTracker, "12"}}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
  ArchiveSinkOptions release;
  place_iteration(options, 0, release);
  EXPECT_EQ(release.folder, kMegatronRelease);
  EXPECT_EQ(release.pointers, (Pointers{{kMegatronTracker, "release"}}));
  fs::create_directory(folder / "iter_0000012");
  EXPECT_EQ(test::code_of([&] { place_iteration(options, 12, sink); }), core::ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace ms::convert
