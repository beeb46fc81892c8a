#include "core/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
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

std::vector<int> cpus_now() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(AffinityTest, SharesAreDisjointAndTheCallersEndsWithThem) {
  const std::vector<int> before = cpus_now();
  const auto count = static_cast<int>(before.size());
  for (int threads = 1; threads <= count; ++threads) {
    const CpuShares shares(threads);
    std::vector<int> all = cpus_now();
    EXPECT_EQ(std::ssize(all), threads == 1 ? count : count / threads) << threads;
    for (int thread = 1; thread < threads; ++thread) {
      std::atomic<bool> placed{false};
      std::thread other([&] {
        placed.wait(false);
        const std::vector<int> own = cpus_now();
        all.insert(all.end(), own.begin(), own.end());
      });
      shares.place(other, thread);
      placed = true;
      placed.notify_one();
      other.join();
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, before) << threads;
  }
  EXPECT_EQ(cpus_now(), before);
}

TEST(AffinityTest, MoreThreadsThanCpusAreNotMoved) {
  const std::vector<int> before = cpus_now();
  const CpuShares shares(static_cast<int>(before.size()) + 1);
  EXPECT_EQ(cpus_now(), before);
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
