// Replays of a job: nothing changed gives back its times; what is sped up helps as far as nobody else is waited for.
#include "profile/analysis/job_replay.h"

#include <gtest/gtest.h>

#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

int64_t unchanged(size_t, const Activity&, int64_t length) { return length; }

TEST_F(JobTest, ReplayOfNothingIsNothing) { EXPECT_EQ(replay({}, unchanged), 0); }

TEST_F(JobTest, NothingChangedGivesBackTheTimesOfTheTrace) {
  load_random();
  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const RankActivities& rank : activity) {
    first = std::min(first, rank.activities.front().start);
    last = std::max(last, rank.activities.back().end);
  }
  EXPECT_EQ(replay(activity, unchanged), last - first);
}

// Rank 2 ends at 40; of that, rank 0's loading delays rank 1's work, and that delays rank 2.
TEST_F(JobTest, WhatIsSpedUpIsPassedOnByMessages) {
  load_chain();
  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  const auto without = [&](size_t rank, Doing doing) {
    return replay(activity, [=](size_t r, const Activity& a, int64_t length) {
      return r == rank && a.doing == doing ? 0 : length;
    });
  };
  EXPECT_EQ(replay(activity, unchanged), 40 * kUnit);
  EXPECT_EQ(without(0, Doing::kLoadingData), 22 * kUnit);
  EXPECT_EQ(without(1, Doing::kComputing), 32 * kUnit)
      << "its first kernel hides behind the loading, its second does not";
  EXPECT_EQ(without(2, Doing::kComputing), 33 * kUnit);
  EXPECT_EQ(without(2, Doing::kLoadingData), 40 * kUnit) << "it loads nothing";
}

}  // namespace
}  // namespace ms::profile
