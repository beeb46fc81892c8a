// Exposed communication followed to its causes, from rank to rank.
#include "profile/analysis/blame.h"

#include <gtest/gtest.h>

#include "profile/sections.h"
#include "tests/support/job_traces.h"

namespace ms::profile {
namespace {

class BlameTest : public JobTest {
 protected:
  // Findings after exposed communication of `lost` was split.
  std::vector<Finding> blame(int64_t lost) {
    std::vector<Finding> findings;
    findings.push_back({FindingKind::kExposedCommunication, lost, 0.5, 0, lost, ""});
    blame_waiting(devices_, comms_, cross_, nullptr, findings);
    return findings;
  }
};

// Of rank 1's and 2's waiting, 18 units each are rank 0's data loading; what rank 2 waits beyond that is the work and
// the transfer of rank 1.
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
  EXPECT_EQ(findings[0].detail, "meanwhile it computes");
  EXPECT_DOUBLE_EQ(findings[0].share, 0.3);
  EXPECT_EQ(findings[1].kind, FindingKind::kExposedCommunication);
  EXPECT_EQ(findings[1].lost_ns, 10 * kUnit) << "what the transfer itself costs, on both";
}

TEST_F(BlameTest, NoMoreIsChargedThanWasLost) {
  load_chain();
  int64_t sum = 0;
  for (const Finding& finding : blame(5 * kUnit)) sum += finding.lost_ns;
  EXPECT_EQ(sum, 5 * kUnit);
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
