#include "core/scheduling.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "core/error.h"
#include "tests/support/thrown.h"

namespace ms::core {
namespace {

TEST(CpuList, ParsesRangesAndRejectsOthers) {
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  for (const char* bad : {"a", "1-", "-1", "3-1", "1,,2", "0-99999"}) {
    EXPECT_EQ(test::code_of([&] { parse_cpu_list(bad); }), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST(Scheduling, AppliesToTheCallingThreadOnly) {
  const int before = ::getpriority(PRIO_PROCESS, 0);
  int seen = 0, cpus = 0, policy = -1;
  std::thread([&] {
    schedule_this_thread(3, {sched_getcpu()});
    seen = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
    policy = ::sched_getscheduler(0);
    cpu_set_t set;
    ::sched_getaffinity(0, sizeof set, &set);
    cpus = CPU_COUNT(&set);
  }).join();
  EXPECT_EQ(seen, std::min(before + 3, 19));
  EXPECT_EQ(cpus, 1);
  EXPECT_EQ(policy, SCHED_BATCH);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), before);
}

}  // namespace
}  // namespace ms::core
