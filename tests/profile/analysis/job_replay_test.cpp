// Replays of a job: unchanged they reproduce its times; a speed-up helps until another rank is waited for.
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

// Rank 2 ends at 40; rank 0's loading delays rank 1's work, which delays rank 2.
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

// Rank 1's clock runs 100 ppm fast, as its clock table says, and it waits 100 ms for rank 0 in each of ten rounds: the
// 10 us of drift in a wait must not separate the wait from what follows it.
TEST_F(JobTest, WaitsAreKnownOnAClockThatDrifts) {
  constexpr int64_t kMs = 1'000'000, kRounds = 10;
  const auto drifting = [](int64_t t) { return t + t / 10'000; };
  {
    test::TraceMaker zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
    for (const int64_t t : {int64_t{0}, 2000 * kMs}) {
      zero.clock(t, 0, 10);
      one.clock(drifting(t), drifting(t) - t, 10);
    }
    for (int64_t i = 0; i < kRounds; ++i) {
      const int64_t t = i * 152 * kMs, end = t + 152 * kMs;
      zero.kernel("gemm", t, t + 150 * kMs);
      zero.comm("allreduce", "dp", {0, 1}, t + 150 * kMs, end);
      one.kernel("gemm", drifting(t), drifting(t + 50 * kMs));
      one.comm("allreduce", "dp", {0, 1}, drifting(t + 50 * kMs), drifting(end));
    }
    zero.finish();
    one.finish();
  }
  load_all();
  const int64_t changed =
      replay(activities(devices_, comms_, cross_), [](size_t rank, const Activity& a, int64_t length) {
        return rank == 0 && a.doing == Doing::kComputing ? length / 3 : length;
      });
  EXPECT_NEAR(static_cast<double>(changed), kRounds * 52.0 * kMs, 0.1 * kMs);
}

}  // namespace
}  // namespace ms::profile
