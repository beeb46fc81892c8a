#include "core/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>
#include <vector>

namespace ms::core {
namespace {

TEST(AffinityTest, CpusOfThisThreadFollowItsAffinity) {
  cpu_set_t all;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  const RankCpus free = cpus_of_this_thread(), again = cpus_of_this_thread();
  EXPECT_EQ(free.count, CPU_COUNT(&all));
  EXPECT_EQ(free.place, again.place);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all)) last = cpu;
  }
  RankCpus bound;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(last, &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    bound = cpus_of_this_thread();
  }).join();
  EXPECT_EQ(bound.count, 1);
  EXPECT_EQ(bound.place == free.place, free.count == 1);
}

TEST(AffinityTest, ThreadContinuesOnAnotherCpuAndMayUseTheSameAsBefore) {
  const RankCpus before = cpus_of_this_thread();
  bool apart = false;
  for (int i = 0; i < 50 && !apart; ++i) {  // the kernel may move it back at once
    const int here = ::sched_getcpu();
    std::thread([&] {
      continue_apart(here, 1);
      apart = ::sched_getcpu() != here;
      EXPECT_EQ(cpus_of_this_thread().place, before.place);
    }).join();
  }
  EXPECT_EQ(apart, before.count > 1);
}

TEST(AffinityTest, ThreadStaysIfTheCircleOfCpusEndsAtItsOwn) {
  const RankCpus cpus = cpus_of_this_thread();
  continue_apart(::sched_getcpu(), static_cast<int>(cpus.count));
  continue_apart(-1, 1);
  EXPECT_EQ(cpus_of_this_thread().place, cpus.place);
}

using Ints = std::vector<int>;

TEST(AffinityTest, RanksWithTheSameCpusShareThem) {
  EXPECT_EQ(cores_of_ranks(std::vector<RankCpus>{{1, 2}, {2, 2}, {3, 2}}), (Ints{2, 2, 2}));
  EXPECT_EQ(cores_of_ranks(std::vector<RankCpus>{{1, 4}, {1, 4}, {2, 4}}), (Ints{2, 2, 4}));
  EXPECT_EQ(cores_of_ranks(std::vector<RankCpus>{{1, 1}, {1, 1}, {0, 0}}), (Ints{1, 1, 0}));
}

TEST(AffinityTest, MoreThreadsThanCoresAreReported) {
  EXPECT_EQ(explain_shortage(Ints{1, 1, 2}, Ints{1, 1, 2}), "");
  EXPECT_EQ(explain_shortage(Ints{1, 1, 2}, Ints{2, 2, 2}),
            "2 compute threads of rank 0 (and of 1 more) share 1 core. Give each rank 2 cores with mpirun --map-by "
            "slot:PE=2 --bind-to core, or use --threads-per-rank 1");
  EXPECT_EQ(explain_shortage(Ints{1, 0}, Ints{1, 8}), "") << "one thread per rank is normal if ranks share a core";
}

}  // namespace
}  // namespace ms::core
