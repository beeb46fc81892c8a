// --packed-weights changes no bit of a run. A copy that is not made again after the weights have changed would.
#include <gtest/gtest.h>

#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using core::TensorRole;
using test::TinyLayout;

class PackedWeights : public testing::TestWithParam<std::tuple<TinyLayout, bool>> {
 protected:
  // Runs steps with evaluations between them, a stop, and a continuation from the checkpoint.
  train::RunSummary run(bool packed, int64_t until, bool continued) const {
    const auto& [layout, bf16] = GetParam();
    train::TrainerConfig config = test::tiny_config(folder_.path(), layout);
    config.training.train_iters = until;
    config.training.bf16 = bf16;
    config.training.deterministic = true;
    config.training.packed_weights = packed;
    config.training.eval_interval = 2;
    config.training.eval_iters = 1;
    config.data.split = "90,10,0";
    config.optimizer.lr = 1e-2;
    config.checkpoint.save = folder_ / (packed ? "packed" : "plain");
    if (continued) config.checkpoint.load = config.checkpoint.save;
    return test::run_on_threads(config, layout.ranks());
  }

  static void expect_same(const train::RunSummary& packed, const train::RunSummary& plain) {
    ASSERT_EQ(packed.steps.size(), plain.steps.size());
    for (size_t i = 0; i < plain.steps.size(); ++i) {
      EXPECT_EQ(packed.steps[i].loss, plain.steps[i].loss) << "step " << i + 1;
      EXPECT_EQ(packed.steps[i].grad_norm, plain.steps[i].grad_norm) << "step " << i + 1;
    }
    EXPECT_EQ(packed.validation_loss, plain.validation_loss);
    EXPECT_EQ(test::largest_distance(test::read_tensors(packed.checkpoint, TensorRole::kParam),
                                     test::read_tensors(plain.checkpoint, TensorRole::kParam)),
              0);
  }

  test::TemporaryFolder folder_;
};

TEST_P(PackedWeights, RunChangesNoBit) {
  expect_same(run(true, 5, false), run(false, 5, false));
  expect_same(run(true, 8, true), run(false, 8, true));
}

INSTANTIATE_TEST_SUITE_P(Table, PackedWeights,
                         testing::Combine(testing::Values(TinyLayout{}, TinyLayout{2, 2, 1, false, true, 2},
                                                          TinyLayout{1, 1, 2, true, false}),
                                          testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param).name() + (std::get<1>(test.param) ? "_bf16" : "_fp32");
                         });

}  // namespace
}  // namespace ms
