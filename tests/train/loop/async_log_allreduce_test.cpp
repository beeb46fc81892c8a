// --async-log-allreduce: the loss arrives after the reduction of gradients, the same to the bit.
#include <gtest/gtest.h>

#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using test::TinyLayout;

TEST(AsyncLogAllreduce, ChangesNoBit) {
  for (const TinyLayout& layout :
       {TinyLayout{1, 1, 2}, TinyLayout{1, 2, 2, 1}, TinyLayout{2, 1, 2, 3, true}, TinyLayout{.dp = 2, .cp = 2}}) {
    SCOPED_TRACE(layout.name());
    const test::TemporaryFolder folder;
    TrainerConfig config = test::tiny_config(folder.path(), layout);
    config.training.train_iters = 3;
    config.training.eval_iters = 1;
    const test::Outcome plain = test::outcome_of(config, layout.ranks(), folder / "plain");
    config.parallel.async_log_allreduce = true;
    const test::Outcome seen = test::outcome_of(config, layout.ranks(), folder / "async");
    EXPECT_GT(plain.summary.steps[0].loss, 1) << "of the last stage, on the first";
    test::expect_same_bits(seen, plain);
  }
}

TEST(AsyncLogAllreduce, IsAwaitedBehindTheGradients) {
  const test::TemporaryFolder folder;
  for (const bool is_asynchronous : {false, true}) {
    TrainerConfig config = test::tiny_config(folder.path(), {1, 1, 2});
    config.training.global_batch_size = 2;
    config.parallel.async_log_allreduce = is_asynchronous;
    test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Optimizer optimizer(*rank.state, *rank.parameters);
      GptStage stage(*rank.state, *rank.parameters);
      optimizer.follow(stage);
      StepRunner runner(*rank.state, stage);
      rank.parameters->initialize(1, [&](const Parameter& parameter, const core::TensorView& values) {
        optimizer.set_master(parameter, values);
      });
      rank.parameters->zero_grads();
      BatchResult result = runner.train(test::drawn_microbatches(1, endpoint.rank() + 1), 1);
      EXPECT_EQ(result.loss == 0, is_asynchronous);
      EXPECT_EQ(result.grad_scale, 1);
      optimizer.finish_gradients(result.grad_scale);
      runner.await_loss(result);
      const double loss = result.loss;
      EXPECT_GT(loss, 0);
      EXPECT_EQ(rank.state->groups.world.allreduce(loss), 2 * loss) << "the same on both ranks";
      runner.await_loss(result);
      EXPECT_EQ(result.loss, loss);
    });
  }
}

}  // namespace
}  // namespace ms::train
