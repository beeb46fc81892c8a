// Exposed communication is attributed to its causes across ranks.
#include "profile/analysis/blame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include "profile/sections.h"
#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

class BlameTest : public JobTest {
 protected:
  // Findings after splitting exposed communication of `lost`.
  std::vector<Finding> blame(int64_t lost) {
    std::vector<Finding> findings;
    findings.push_back({FindingKind::kExposedCommunication, lost, 0.5, 0, lost, ""});
    blame_waiting(devices_, comms_, cross_, nullptr, findings);
    return findings;
  }
};

// Of the waiting of ranks 1 and 2, 18 units each are rank 0's data loading; the rest of rank 2's waiting is the work
// and the transfer of rank 1.
TEST_F(BlameTest, AStarvedRankIsChargedForAllWhoStandStill) {
  load_chain();
  const Results results = analyze(store_, sections::every());
  ASSERT_FALSE(results.at<Findings>().empty());
  EXPECT_EQ(results.at<Findings>()[0].kind, FindingKind::kDataLoading);
  EXPECT_EQ(results.at<Findings>()[0].worst_rank, 0);
  EXPECT_EQ(results.at<Findings>()[0].lost_ns, (18 + 18 + 18) * kUnit);
}

TEST_F(BlameTest, TheLateRankIsNamedAndThePartsAddUp) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    zero.kernel("gemm", 0, 10);
    zero.allreduce({0, 1}, 10, 30);
    one.kernel("gemm", 0, 25);
    one.allreduce({0, 1}, 25, 30);
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  const std::vector<Finding> findings = blame(25 * kUnit);  // 20 of rank 0, 5 of rank 1
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, FindingKind::kWaiting);
  EXPECT_EQ(findings[0].worst_rank, 1);
  EXPECT_EQ(findings[0].lost_ns, 15 * kUnit);
  EXPECT_EQ(findings[0].detail, "it computes 1.500 ms longer than the median rank, mostly in gemm (1.500 ms more)");
  EXPECT_DOUBLE_EQ(findings[0].share, 0.3);
  EXPECT_EQ(findings[1].kind, FindingKind::kExposedCommunication);
  EXPECT_EQ(findings[1].lost_ns, 10 * kUnit) << "what the transfer itself costs, on both";
}

// Of rank 0's 20 units, 15 are caused by rank 1; the rest of a rank is at most its remaining time.
TEST_F(BlameTest, WorstRankOfTheRestIsMeasuredAfterWaitsAreTakenOut) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    zero.kernel("gemm", 0, 10);
    zero.allreduce({0, 1}, 10, 30);
    one.kernel("gemm", 0, 25);
    one.allreduce({0, 1}, 25, 30);
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  std::vector<Finding> findings = blame(25 * kUnit);
  EXPECT_EQ(findings[1].kind, FindingKind::kExposedCommunication);
  EXPECT_EQ(findings[1].worst_ns, 5 * kUnit);
  EXPECT_LE(findings[1].worst_ns, findings[1].lost_ns);
}

// Each of four ranks exchanges with both neighbours; rank 3 computes three times as long and must be named.
TEST_F(BlameTest, RingIsNoPipelineAndItsLateRankIsNamedWithItsKernel) {
  {
    int64_t now[4] = {0, 0, 0, 0};
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < 4; ++r) ranks.push_back(std::make_unique<Rank>(folder_.path(), r, 4));
    for (int i = 0; i < 5; ++i) {
      int64_t start[4];
      for (int r = 0; r < 4; ++r) {
        const int64_t length = r == 3 ? 30 : 10;
        ranks[static_cast<size_t>(r)]->kernel("gemm", now[r], now[r] + length);
        start[r] = now[r] + length;
      }
      for (int r = 0; r < 4; ++r) {
        const int next = (r + 1) % 4, before = (r + 3) % 4;
        const int64_t end = std::max({start[r], start[before], start[next]}) + 1;
        Rank& one = *ranks[static_cast<size_t>(r)];
        one.maker.comm("send", "ring", {0, 1, 2, 3}, start[r] * kUnit, end * kUnit, 1000, next);
        one.maker.comm("recv", "ring", {0, 1, 2, 3}, start[r] * kUnit, end * kUnit, 1000, before);
        now[r] = end;
      }
    }
    for (auto& one : ranks) one->maker.finish();
  }
  load_all();
  EXPECT_EQ(pipeline(devices_, comms_, cross_), std::nullopt);
  const Results results = analyze(store_, sections::every());
  const Finding& first = results.at<Findings>().at(0);
  EXPECT_EQ(first.kind, FindingKind::kWaiting);
  EXPECT_EQ(first.worst_rank, 3);
  EXPECT_EQ(first.detail, "it computes 10.000 ms longer than the median rank, mostly in gemm (10.000 ms more)");
}

// Three ranks compute for random times before each of 40 all-reduces. Each wait is caused by the rank that comes last;
// the transfer has no cause.
TEST_F(BlameTest, PlantedWaitsAreChargedToTheRanksThatComeLast) {
  int64_t waits = 0, exposed = 0;
  std::map<int, int64_t> by_rank;
  {
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < 3; ++r) ranks.push_back(std::make_unique<Rank>(rank(r, 3)));
    std::mt19937_64 random(5);
    int64_t now = 0;
    for (int round = 0; round < 40; ++round) {
      std::vector<int64_t> work;
      for (int r = 0; r < 3; ++r) work.push_back(1 + static_cast<int64_t>(random() % 20) + (r == 1 ? 8 : 0));
      const auto last = std::max_element(work.begin(), work.end());
      if (std::count(work.begin(), work.end(), *last) > 1) *last += 30;  // only one rank may be last
      const int64_t end = now + *last + 2;
      for (size_t r = 0; r < 3; ++r) {
        ranks[r]->kernel("gemm", now, now + work[r]);
        ranks[r]->allreduce({0, 1, 2}, now + work[r], end);
        waits += *last - work[r];
        exposed += end - now - work[r];
        by_rank[static_cast<int>(last - work.begin())] += *last - work[r];
      }
      now = end;
    }
    for (const auto& one : ranks) one->maker.finish();
  }
  load_all();
  const std::vector<Finding> findings = blame(exposed * kUnit);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].kind, FindingKind::kWaiting);
  EXPECT_EQ(findings[0].lost_ns, waits * kUnit);
  EXPECT_EQ(findings[0].worst_rank, 1);
  EXPECT_EQ(findings[0].worst_ns, by_rank[1] * kUnit);
  EXPECT_EQ(findings[1].kind, FindingKind::kExposedCommunication);
  EXPECT_EQ(findings[1].lost_ns, 3 * 40 * 2 * kUnit) << "two units of transfer on each of three ranks in each round";
}

TEST_F(BlameTest, NoMoreIsChargedThanWasLost) {
  load_chain();
  int64_t sum = 0;
  for (const Finding& finding : blame(5 * kUnit)) sum += finding.lost_ns;
  EXPECT_EQ(sum, 5 * kUnit);
}

// Rank 1's clock is 3 units ahead: alignment removes that, except with AlignMode::kNone.
TEST_F(BlameTest, AlignmentNoneTakesTimesAsWritten) {
  {
    Rank zero = rank(0, 2), one = rank(1, 2);
    for (int64_t i = 0; i < 4; ++i) {
      zero.allreduce({0, 1}, 20 * i, 20 * i + 10);
      one.allreduce({0, 1}, 20 * i + 5, 20 * i + 13);
    }
    zero.maker.finish();
    one.maker.finish();
  }
  load_all();
  const RankClock moved = cross_rank(devices_, comms_, AlignMode::kOffset).clocks.ranks[1];
  const CrossRank as_written = cross_rank(devices_, comms_, AlignMode::kNone);
  EXPECT_EQ(moved.to_reference(1000 * kUnit), 997 * kUnit);
  EXPECT_EQ(as_written.clocks.ranks[1].to_reference(1000 * kUnit), 1000 * kUnit);
  EXPECT_EQ(as_written.by_rank.at(0).wait, 4 * 5 * kUnit);
}

TEST_F(BlameTest, WithoutReliableClocksNothingChanges) {
  load_chain();
  cross_.clocks.reliable = false;
  const std::vector<Finding> findings = blame(7 * kUnit);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].lost_ns, 7 * kUnit);
}

}  // namespace
}  // namespace ms::profile
