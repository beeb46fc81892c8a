// Where ranks meet: what they do at every moment, whom they wait for, the path across them, and replays, on traces
// whose answers are known.
#include "profile/analysis/job_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profile/analysis/job_replay.h"
#include "profile/analysis/results.h"
#include "profile/ingest/load.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using test::TraceMaker;
using testing::ElementsAre;

constexpr int64_t kUnit = 100'000;  // ns: far above what alignment calls equal

class JobPathTest : public testing::Test {
 protected:
  struct Rank {
    Rank(const std::filesystem::path& folder, int rank, int ranks) : maker(folder, rank, ranks) {
      maker.clock(0, 0, 10);
      maker.clock(1000 * kUnit, 0, 10);
    }
    void kernel(const char* name, int64_t from, int64_t to) { maker.kernel(name, from * kUnit, to * kUnit); }
    void host(const char* name, int64_t from, int64_t to) { maker.host(name, from * kUnit, to * kUnit); }
    void allreduce(std::vector<int> ranks, int64_t from, int64_t to) {
      maker.comm("allreduce", "dp", ranks, from * kUnit, to * kUnit);
    }
    void send(int to, int64_t from, int64_t until) { message("send", to, from, until); }
    void receive(int sender, int64_t from, int64_t until) { message("recv", sender, from, until); }
    void message(const char* what, int peer, int64_t from, int64_t until) {
      maker.comm(what, "pp", {0, 1, 2}, from * kUnit, until * kUnit, 1000, peer);
    }
    TraceMaker maker;
  };
  Rank rank(int rank, int ranks) { return {folder_.path(), rank, ranks}; }

  void load_all() {
    store_ = load({folder_.path().string()}, {});
    views_.clear();
    devices_.clear();
    for (const auto& trace : store_.ranks) views_.push_back(view_devices(*trace));
    for (size_t r = 0; r < views_.size(); ++r) devices_.push_back({store_.ranks[r].get(), &views_[r]});
    comms_ = match_comms(devices_);
    cross_ = cross_rank(devices_, comms_, AlignMode::kAuto);
    ASSERT_TRUE(cross_.clocks.reliable) << cross_.clocks.why;
  }

  std::string pieces(const JobPath& path) const {
    std::string out;
    for (const PathPiece& piece : path.pieces) {
      out += core::cat(out.empty() ? "" : " ", piece.rank, ":", (piece.end - piece.start) / kUnit,
                       doing_name(piece.doing)[0], doing_name(piece.doing)[1]);
    }
    return out;
  }

  test::TemporaryFolder folder_;
  Store store_;
  std::vector<DeviceView> views_;
  std::vector<RankDevices> devices_;
  MatchedComms comms_;
  CrossRank cross_;
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
  EXPECT_EQ(pieces(path), "1:17co 1:3co 1:10co 0:3co 0:7co");  // computing and communication begin alike
  ASSERT_EQ(path.shares.size(), 3u);
  EXPECT_EQ(path.shares[0].name, "gemm");
  EXPECT_EQ(path.shares[0].ns, 17 * kUnit);
  EXPECT_EQ(path.shares[1].name, "norm");
  EXPECT_EQ(path.shares[1].ns, 17 * kUnit);
  EXPECT_EQ(path.shares[2].ns, 6 * kUnit);
  EXPECT_THAT(path.by_rank, ElementsAre(std::pair(0, 10 * kUnit), std::pair(1, 30 * kUnit)));

  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  // Rank 1 without its first kernel: rank 0 is last then, at 10, and gains 7, not 17.
  const int64_t begin = activity[1].activities.front().start;
  const auto without = [&](size_t r, const Activity& a, int64_t length) {
    return r == 1 && a.start == begin ? 0 : length;
  };
  EXPECT_EQ(replay(activity, without), 33 * kUnit);
  // Transfers that take no time: 3 + 3.
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
  // Rank 0 loads data until 20 and sends; rank 1 waits for it, computes and sends; rank 2 waits for rank 1.
  {
    Rank zero = rank(0, 3), one = rank(1, 3), two = rank(2, 3);
    for (Rank* r : {&zero, &one, &two}) r->kernel("gemm", 0, 2);
    zero.host("ProfilerStep#1", 0, 22);
    one.host("ProfilerStep#1", 0, 33);
    two.host("ProfilerStep#1", 0, 40);
    zero.host("data", 2, 20);
    zero.send(1, 20, 22);
    one.receive(0, 2, 22);
    one.kernel("gemm", 22, 30);
    one.send(2, 30, 33);
    two.receive(1, 2, 33);
    two.kernel("gemm", 33, 40);
    for (Rank* r : {&zero, &one, &two}) r->maker.finish();
  }
  load_all();
  const JobPath path = job_path(devices_, comms_, cross_);
  EXPECT_EQ(pieces(path), "0:2co 0:18da 1:2co 1:8co 2:3co 2:7co");
  std::map<std::string, int64_t> what_if;
  for (const WhatIf& w : path.what_if) what_if[w.change] = w.runtime_ns;
  EXPECT_EQ(what_if["data at hand at once"], 22 * kUnit);

  // Of rank 1's and 2's waiting, 18 units each are rank 0's data loading; 10 more of rank 2's are the work and transfer
  // of rank 1.
  const Results results = analyze(store_, kEverySection);
  ASSERT_FALSE(results.findings.empty());
  EXPECT_EQ(results.findings[0].kind, FindingKind::kDataLoading);
  EXPECT_EQ(results.findings[0].worst_rank, 0);
  EXPECT_EQ(results.findings[0].lost_ns, (18 + 18 + 18) * kUnit);
}

TEST_F(JobPathTest, NothingChangedGivesBackTheTimesOfTheTrace) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    int64_t now[2] = {0, 3};
    uint64_t random = 7;
    for (int i = 0; i < 200; ++i) {
      for (int r = 0; r < 2; ++r) {
        random = random * 6364136223846793005 + 1442695040888963407;
        const auto length = static_cast<int64_t>(random >> 60) + 1;
        (r == 0 ? zero : one).kernel("gemm", now[r], now[r] + length);
        now[r] += length + static_cast<int64_t>(random >> 40 & 3);
      }
      const int64_t end = std::max(now[0], now[1]) + 2;
      zero.allreduce({0, 1}, now[0], end);
      one.allreduce({0, 1}, now[1], end);
      now[0] = now[1] = end;
    }
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  const std::vector<RankActivities> activity = activities(devices_, comms_, cross_);
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const RankActivities& rank : activity) {
    for (size_t i = 0; i + 1 < rank.activities.size(); ++i) {
      ASSERT_EQ(rank.activities[i].end, rank.activities[i + 1].start);
    }
    first = std::min(first, rank.activities.front().start);
    last = std::max(last, rank.activities.back().end);
  }
  const auto same = [](size_t, const Activity&, int64_t length) { return length; };
  EXPECT_EQ(replay(activity, same), last - first);
  const JobPath path = job_path(devices_, comms_, cross_);
  int64_t sum = 0, shares = 0;
  for (const PathPiece& piece : path.pieces) sum += piece.end - piece.start;
  for (const PathShare& share : path.shares) shares += share.ns;
  EXPECT_EQ(sum, path.runtime_ns);
  EXPECT_EQ(shares, path.runtime_ns);
}

}  // namespace
}  // namespace ms::profile
