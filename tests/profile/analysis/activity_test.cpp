// Activities of ranks: contiguous in time, priority among several operations, and who waits for whom.
#include "profile/analysis/activity.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

std::string told(const RankActivities& rank) {
  constexpr std::string_view kLetters = "CNMdsi";
  std::string out;
  for (const Activity& a : rank.activities) {
    out += core::cat(out.empty() ? "" : " ", (a.end - a.start) / kUnit, kLetters[static_cast<size_t>(a.doing)]);
  }
  return out;
}

TEST_F(JobTest, ActivitiesLieSideBySide) {
  load_random();
  for (const RankActivities& rank : activities(devices_, comms_, cross_)) {
    for (size_t i = 0; i + 1 < rank.activities.size(); ++i) {
      ASSERT_EQ(rank.activities[i].end, rank.activities[i + 1].start);
    }
    EXPECT_EQ(rank.at(rank.activities[5].start), 5u);
    EXPECT_EQ(rank.at(rank.activities[5].end - 1), 5u);
    EXPECT_EQ(rank.at(rank.activities.back().end), rank.activities.size());
  }
}

TEST_F(JobTest, EachMomentHasOneActivity) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    zero.host("ProfilerStep#1", 0, 50);
    zero.host("data", 40, 46);
    zero.host("save", 44, 48);
    zero.kernel("gemm", 0, 10);
    zero.allreduce({0, 1}, 5, 20);                           // 5 of it hidden
    zero.maker.copy("Memcpy DtoH", 15 * kUnit, 30 * kUnit);  // 5 of it after the all-reduce
    one.host("ProfilerStep#1", 0, 50);
    one.allreduce({0, 1}, 12, 20);
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  EXPECT_EQ(told(activity[0]), "10C 10N 10M 10i 6d 2s 2i");
  EXPECT_EQ(told(activity[1]), "12i 8N 30i");
  const CommSpan &early = activity[0].comms.at(0), &late = activity[1].comms.at(0);
  EXPECT_EQ(early.ready - early.start, 7 * kUnit) << "until rank 1 came";
  EXPECT_EQ(early.waits_for, 1u);
  EXPECT_EQ(late.ready, late.start) << "who comes last waits for nobody";
  EXPECT_EQ(early.operation, late.operation);
  EXPECT_NE(early.operation, 0u);
}

TEST_F(JobTest, AReceiverWaitsForItsSender) {
  load_chain();
  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  EXPECT_EQ(told(activity[0]), "2C 18d 2N");
  EXPECT_EQ(told(activity[1]), "2C 20N 8C 3N");
  const CommSpan& receive = activity[1].comms.at(0);
  EXPECT_TRUE(receive.message);
  EXPECT_EQ(receive.source, 0u);
  EXPECT_EQ(receive.destination, 1u);
  EXPECT_EQ(receive.ready - receive.start, 18 * kUnit);
  EXPECT_EQ(receive.waits_for, 0u);
}

}  // namespace
}  // namespace ms::profile
