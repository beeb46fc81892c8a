#include "core/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

TEST(AffinityTest, ThreadsSeeTheCpusTheyMayUse) {
  const RankCpus all = cpus_of_this_thread();
  ASSERT_FALSE(all.cpus.empty());
  RankCpus bound;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(all.cpus.back(), &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    bound = cpus_of_this_thread();
  }).join();
  EXPECT_EQ(bound.cpus, std::vector<int>{all.cpus.back()});
  EXPECT_EQ(bound.host, all.host);
}

TEST(AffinityTest, TextAndBack) {
  const RankCpus cpus{"node 7", {0, 1, 64}};
  EXPECT_EQ(encode(cpus), "node 7 0,1,64");
  EXPECT_EQ(decode_rank_cpus(encode(cpus)).host, cpus.host);
  EXPECT_EQ(decode_rank_cpus(encode(cpus)).cpus, cpus.cpus);
  EXPECT_TRUE(decode_rank_cpus("node ").cpus.empty());
  EXPECT_EQ(test::code_of([] { decode_rank_cpus("node"); }), ErrorCode::kInvalidArgument);
}

TEST(AffinityTest, RanksThatMayUseTheSameCpusShareThem) {
  const std::vector<RankCpus> bound = {{"a", {0, 1}}, {"a", {2, 3}}, {"b", {0, 1}}};
  const std::vector<RankCpus> free = {{"a", {0, 1, 2, 3}}, {"a", {0, 1, 2, 3}}, {"b", {0, 1, 2, 3}}};
  const std::vector<RankCpus> crowded = {{"a", {0}}, {"a", {0}}, {"a", {}}};
  EXPECT_EQ(cores_of_rank(bound, 0), 2);
  EXPECT_EQ(cores_of_rank(bound, 1), 2);
  EXPECT_EQ(cores_of_rank(free, 1), 2);
  EXPECT_EQ(cores_of_rank(free, 2), 4);
  EXPECT_EQ(cores_of_rank(crowded, 0), 1);
  EXPECT_EQ(cores_of_rank(crowded, 2), 0);
}

TEST(AffinityTest, MoreThreadsThanCoresAreTold) {
  const std::vector<RankCpus> bound = {{"a", {0}}, {"a", {1}}, {"a", {2, 3}}};
  EXPECT_EQ(explain_shortage(bound, std::vector<int>{1, 1, 2}), "");
  EXPECT_EQ(
      explain_shortage(bound, std::vector<int>{2, 2, 2}),
      "2 compute threads of rank 0 (and of 1 more) share 1 core: it may use the CPUs 0 of a. mpirun --map-by slot:PE=2 "
      "--bind-to core gives each rank 2, --threads-per-rank 1 uses those it has");
  const std::vector<RankCpus> shared = {{"a", {0, 1}}, {"a", {0, 1}}, {"a", {}}};
  EXPECT_NE(explain_shortage(shared, std::vector<int>{2, 2, 2}), "");
  EXPECT_EQ(explain_shortage(shared, std::vector<int>{1, 1, 8}), "");
  const std::vector<RankCpus> crowded(4, RankCpus{"a", {0, 1}});  // more ranks than cores is normal
  EXPECT_EQ(explain_shortage(crowded, std::vector<int>{1, 1, 1, 1}), "");
}

}  // namespace
}  // namespace ms::core
