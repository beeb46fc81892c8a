// --log-straggler: its text, and that all ranks say the same.
#include "train/loop/straggler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "tests/support/thread_comm.h"

namespace ms::train {
namespace {

TEST(Straggler, NamesTheRankThatDelaysTheOthersAndWhoWaitsMost) {
  EXPECT_EQ(straggler_text({-1.5, -1.0, 3.0, -0.5}, 10, 1),
            "straggler: rank 2 made the others wait 3.00 s (10.0 % of their time) | waited most: rank 0, 1.50 s");
}

TEST(Straggler, LittleIsNoStraggler) {
  EXPECT_EQ(straggler_text({0.1, -0.1}, 10, 1),
            "no straggler: rank 0 made the others wait 0.10 s (1.0 % of their time) | waited most: rank 1, 0.10 s");
}

TEST(Straggler, NamesAsManyAsAskedOfThoseThatDid) {
  EXPECT_EQ(straggler_text({1, -2, 1.5, -0.5}, 2, 9),
            "straggler: rank 2 made the others wait 1.50 s (25.0 % of their time), rank 0 made the others wait 1.00 s "
            "(16.7 % of their time) | waited most: rank 1, 2.00 s, rank 3, 0.50 s");
  EXPECT_EQ(straggler_text({1, -2, 1.5, -0.5}, 2, 1),
            "straggler: rank 2 made the others wait 1.50 s (25.0 % of their time) | waited most: rank 1, 2.00 s");
}

TEST(Straggler, NamesNobodyWhereNobodyWaits) {
  EXPECT_EQ(straggler_text({0, 0}, 2, 2), "no straggler: no rank made the others wait");
  EXPECT_EQ(straggler_text({0}, 2, 1), "no straggler: no rank made the others wait");
}

TEST(Straggler, EveryRankNamesTheOneThatIsLate) {
  std::vector<std::string> lines(3);
  test::run_thread_ranks(3, [&](core::Endpoint& endpoint) {
    std::vector<int> all(3);
    std::iota(all.begin(), all.end(), 0);
    core::Communicator world(endpoint, "world", all, 0);
    StragglerLog log;
    for (int step = 0; step < 2; ++step) {
      if (endpoint.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      world.barrier();
    }
    lines[static_cast<size_t>(endpoint.rank())] = log.take_line(world, 1);
  });
  for (const std::string& line : lines) EXPECT_THAT(line, ::testing::StartsWith("straggler: rank 1 made the others"));
}

}  // namespace
}  // namespace ms::train
