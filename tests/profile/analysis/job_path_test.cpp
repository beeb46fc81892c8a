// The critical path across ranks and the what-if answers, on traces whose results are known.
#include "profile/analysis/job_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/analysis/job_replay.h"
#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

using testing::ElementsAre;

class JobPathTest : public JobTest {
 protected:
  std::string pieces(const JobPath& path) const {
    std::string out;
    for (const PathPiece& piece : path.pieces) {
      out += core::cat(out.empty() ? "" : " ", piece.rank, ":", (piece.end - piece.start) / kUnit,
                       doing_name(piece.doing)[0], doing_name(piece.doing)[1]);
    }
    return out;
  }
};

// Rank 1 comes last to both operations, at 17 and at 30; then rank 0 has more to do.
TEST_F(JobPathTest, FollowsTheOneWhoIsWaitedFor) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    zero.kernel("gemm", 0, 10);
    zero.allreduce({0, 1}, 10, 20);
    zero.kernel("norm", 20, 25);
    zero.allreduce({0, 1}, 25, 33);
    zero.kernel("norm", 33, 40);
    one.kernel("gemm", 0, 17);
    one.allreduce({0, 1}, 17, 20);
    one.kernel("norm", 20, 30);
    one.allreduce({0, 1}, 30, 33);
    one.kernel("norm", 33, 36);
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  const JobPath path = job_path(devices_, comms_, cross_);
  EXPECT_EQ(path.problem, "");
  EXPECT_EQ(path.runtime_ns, 40 * kUnit);
  EXPECT_EQ(pieces(path), "1:17co 1:3co 1:10co 0:3co 0:7co");  // computing and communication both start with "co"
  ASSERT_EQ(path.shares.size(), 3u);
  EXPECT_EQ(path.shares[0].name, "gemm");
  EXPECT_EQ(path.shares[0].ns, 17 * kUnit);
  EXPECT_EQ(path.shares[1].name, "norm");
  EXPECT_EQ(path.shares[1].ns, 17 * kUnit);
  EXPECT_EQ(path.shares[2].ns, 6 * kUnit);
  EXPECT_THAT(path.by_rank, ElementsAre(std::pair(0, 10 * kUnit), std::pair(1, 30 * kUnit)));

  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  // Without rank 1's first kernel, rank 0 arrives last, at 10: the gain is 7, not 17.
  const int64_t begin = activity[1].activities.front().start;
  const auto without = [&](size_t r, const Activity& a, int64_t length) {
    return r == 1 && a.start == begin ? 0 : length;
  };
  EXPECT_EQ(replay(activity, without), 33 * kUnit);
  // Instant transfers save 3 + 3.
  const auto instant = [](size_t, const Activity& a, int64_t length) {
    return a.doing == Doing::kCommunicating ? 0 : length;
  };
  EXPECT_EQ(replay(activity, instant), 34 * kUnit);
  std::map<std::string, int64_t> what_if;
  for (const WhatIf& w : path.what_if) what_if[w.change] = w.runtime_ns;
  EXPECT_EQ(what_if["gemm 10 % faster"], 40 * kUnit - 17 * kUnit / 10);
  EXPECT_EQ(what_if["norm 10 % faster"], 40 * kUnit - 17 * kUnit / 10);
  EXPECT_EQ(what_if.count("no stops for checkpoints"), 0u);
}

TEST_F(JobPathTest, AChainOfWaitsEndsAtItsCause) {
  load_chain();
  const JobPath path = job_path(devices_, comms_, cross_);
  EXPECT_EQ(pieces(path), "0:2co 0:18da 1:2co 1:8co 2:3co 2:7co");
  std::map<std::string, int64_t> what_if;
  for (const WhatIf& w : path.what_if) what_if[w.change] = w.runtime_ns;
  EXPECT_EQ(what_if["data at hand at once"], 22 * kUnit);
}

TEST_F(JobPathTest, PiecesAndSharesAddUp) {
  load_random();
  const JobPath path = job_path(devices_, comms_, cross_);
  int64_t sum = 0, shares = 0;
  for (const PathPiece& piece : path.pieces) sum += piece.end - piece.start;
  for (const PathShare& share : path.shares) shares += share.ns;
  EXPECT_EQ(sum, path.runtime_ns);
  EXPECT_EQ(shares, path.runtime_ns);
}

}  // namespace
}  // namespace ms::profile
