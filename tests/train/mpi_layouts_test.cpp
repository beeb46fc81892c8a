// The same layouts as MPI processes: the collectives are the same code, so every bit equals the run on thread ranks.
#include <gtest/gtest.h>

#include "tests/support/mpi_world.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

using test::TinyLayout;

const std::vector<TinyLayout> kLayouts = {{1, 1, 1, false, false},
                                          {2, 1, 1, false, true},
                                          {1, 2, 1, false, false},
                                          {1, 1, 2, true, false},
                                          {2, 2, 1, true, true},
                                          {2, 1, 2, true, false},
                                          {4, 1, 1, false, false},
                                          {1, 2, 2, false, false},
                                          {1, 2, 1, false, false, 2},
                                          {2, 2, 1, false, true, 2},
                                          {1, 1, 1, true, false, 1, "", "", 4, "a2a"},
                                          {2, 1, 1, true, true, 1, "", "", 2, "p2p"},
                                          {1, 1, 2, true, false, 1, "", "", 2, "all_gather"}};

TEST(MpiLayouts, EqualThreadRanksBitForBit) {
  auto endpoint = test::make_mpi_endpoint();
  std::vector<int> ranks(static_cast<size_t>(endpoint->size()));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  core::Communicator world(*endpoint, "test", ranks, 900);
  for (const TinyLayout& layout : kLayouts) {
    if (layout.ranks() != endpoint->size()) continue;
    std::unique_ptr<test::TemporaryFolder> folder;
    if (world.rank() == 0) folder = std::make_unique<test::TemporaryFolder>();
    const std::string shared = world.bcast_string(folder ? folder->path().string() : "", 0);
    if (world.rank() == 0) test::tiny_config(shared);  // writes the data set once
    world.barrier();
    train::TrainerConfig config = test::tiny_config(shared, layout);
    config.training.train_iters = 10;
    config.training.bf16 = true;
    config.checkpoint.save = shared + "/mpi";
    core::ThreadPool pool(1);
    train::Trainer trainer(config, *endpoint, pool, nullptr, {});
    const train::RunSummary by_mpi = trainer.run();
    if (world.rank() == 0) {
      config.checkpoint.save = shared + "/threads";
      const train::RunSummary by_threads = test::run_on_threads(config, layout.ranks());
      ASSERT_EQ(by_mpi.steps.size(), 10U);
      for (size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(by_mpi.steps[i].loss, by_threads.steps[i].loss) << layout.name() << " step " << i + 1;
        EXPECT_EQ(by_mpi.steps[i].grad_norm, by_threads.steps[i].grad_norm) << layout.name();
      }
      for (core::TensorRole role : {core::TensorRole::kParam, core::TensorRole::kMaster, core::TensorRole::kExpAvgSq}) {
        EXPECT_EQ(test::largest_distance(test::read_tensors(by_mpi.checkpoint, role),
                                         test::read_tensors(by_threads.checkpoint, role)),
                  0)
            << layout.name() << " " << core::role_name(role);
      }
    }
    world.barrier();
  }
}

}  // namespace
}  // namespace ms
