// --reuse-fp32-param changes no bit, and halves the memory of the master weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "train/optim/optimizer.h"

namespace ms {
namespace {

using core::MemoryTag;
using core::TensorRole;
using test::TinyLayout;

class ReuseFp32Param : public testing::TestWithParam<TinyLayout> {
 protected:
  // Runs and saves on the way.
  train::RunSummary run(bool reuses, int64_t until, const std::string& save, const std::string& load = {}) const {
    train::TrainerConfig config = test::tiny_config(folder_.path(), GetParam());
    config.training.bf16 = true;
    config.training.train_iters = until;
    config.optimizer.reuse_fp32_param = reuses;
    config.optimizer.weight_decay = 0.1;
    config.checkpoint.save = folder_ / save;
    config.checkpoint.save_interval = 2;
    config.checkpoint.save_keep_last = 1;
    if (!load.empty()) config.checkpoint.load = folder_ / load;
    return test::run_on_threads(config, GetParam().ranks());
  }

  static void expect_same(const train::RunSummary& reusing, const train::RunSummary& plain) {
    ASSERT_EQ(reusing.steps.size(), plain.steps.size());
    for (size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_EQ(reusing.steps[i].loss, plain.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(reusing.steps[i].grad_norm, plain.steps[i].grad_norm) << "step " << i + 1;
    }
    for (TensorRole role : {TensorRole::kParam, TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
      const auto tensors = test::read_tensors(plain.checkpoint, role);
      EXPECT_FALSE(tensors.empty());
      EXPECT_EQ(test::largest_distance(test::read_tensors(reusing.checkpoint, role), tensors), 0)
          << core::role_name(role);
    }
  }

  test::TemporaryFolder folder_;
};

TEST_P(ReuseFp32Param, ChangesNoBitAndHalvesMasterMemory) {
  const auto reusing = run(true, 5, "reusing"), plain = run(false, 5, "plain");
  expect_same(reusing, plain);
  const auto peak = [](const train::RunSummary& summary, MemoryTag tag) {
    return summary.steps.back().peak_bytes[static_cast<size_t>(tag)];
  };
  EXPECT_EQ(peak(reusing, MemoryTag::kMaster) * 2, peak(plain, MemoryTag::kMaster));
  for (const MemoryTag tag : {MemoryTag::kParam, MemoryTag::kGrad, MemoryTag::kOptim, MemoryTag::kAct}) {
    EXPECT_EQ(peak(reusing, tag), peak(plain, tag)) << core::memory_tag_name(tag);
  }
  // Each continues from the checkpoint of the other.
  expect_same(run(true, 9, "from_plain", "plain"), run(false, 9, "from_reusing", "reusing"));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ReuseFp32Param,
                         testing::Values(TinyLayout{}, TinyLayout{1, 1, 2, true}, TinyLayout{2, 2, 1, false, true, 2},
                                         TinyLayout{2, 1, 2, true}, TinyLayout{1, 1, 2}),
                         [](const auto& test) { return test.param.name(); });

// CheckpointManager by every way of copying the state, with steps around them.
TEST(ReuseFp32ParamSaves, AreEqualForEverySaveMode) {
  using Change = std::function<void(train::TrainerConfig&)>;
  const std::vector<std::pair<const char*, Change>> ways = {
      {"in the foreground", [](train::TrainerConfig& config) { config.checkpoint.async_save = false; }},
      {"gathered", [](train::TrainerConfig& config) { config.checkpoint.ckpt_gather = true; }},
      {"after a step that is passed over",
       [](train::TrainerConfig& config) { config.training.iterations_to_skip = {4}; }},
      {"at the end", [](train::TrainerConfig& config) { config.checkpoint.save_interval = 0; }}};
  for (const auto& [name, change] : ways) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder;
    std::map<std::string, std::vector<float>> masters[2];
    for (const bool reuses : {false, true}) {
      train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, true});
      config.training.bf16 = true;
      config.training.train_iters = 6;
      config.optimizer.reuse_fp32_param = reuses;
      config.checkpoint.save = folder / (reuses ? "reusing" : "plain");
      config.checkpoint.save_interval = 2;
      change(config);
      masters[reuses ? 1 : 0] = test::read_tensors(test::run_on_threads(config, 2).checkpoint, TensorRole::kMaster);
    }
    EXPECT_FALSE(masters[0].empty());
    EXPECT_EQ(test::largest_distance(masters[1], masters[0]), 0);
  }
}

// If a checkpoint's weights were rounded differently, each owner rounds its own again.
TEST(ReuseFp32ParamLoads, WeightsEqualTheOwnersOnAllRanks) {
  const test::TemporaryFolder folder;
  train::TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2, true});
  config.model.vocab_size = 257;
  config.training.train_iters = 1;
  config.training.bf16 = true;
  config.optimizer.reuse_fp32_param = true;
  config.resolve_and_validate(2);
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    train::ProcessGroups groups(endpoint, config.grid(2));
    core::Arena arena;
    core::ThreadPool pool(1);
    ops::Context ops{pool, arena};
    train::RankState state{config, groups, ops};
    train::ParameterStore parameters(state);
    train::Optimizer optimizer(state, parameters);
    const auto weights = parameters.weights().elements<kernels::bf16>();
    optimizer.hold_state();
    for (float& value : optimizer.master().elements<float>()) value = 1.001F;
    std::ranges::fill(weights, kernels::bf16(3.0F));
    optimizer.release_state(/*is_changed=*/true);
    optimizer.share_weights();
    for (const train::Parameter& parameter : parameters.all()) {
      for (const kernels::bf16 weight : parameter.weight.elements<kernels::bf16>()) {
        ASSERT_EQ(weight, kernels::bf16(1.001F)) << parameter.spec.key;
      }
    }
    optimizer.hold_state();
    for (const train::Parameter& parameter : parameters.all()) {
      const layout::FlatRange part = parameters.owned_part(parameter);
      if (part.begin >= part.end) continue;
      const auto [begin, end] = parameters.owned_place(part);
      for (int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(optimizer.master().data<float>()[i], 1.001F) << parameter.spec.key;
      }
    }
  });
}

}  // namespace
}  // namespace ms
