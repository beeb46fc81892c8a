// Files in other tools' columns: the step table of the Ascend cluster tool, and the findings.
#include "profile/report/section_files.h"

#include <gtest/gtest.h>

#include "profile/analysis/steps.h"

namespace ms::profile {
namespace {

constexpr int64_t kUs = 1000;

// Distinct in every column, in the order of the file, so that no two columns can be exchanged.
StepTimes times_from(int64_t first) {
  StepTimes times;
  int64_t us = first;
  for (const StepColumn& column : kStepColumns) times.*column.time = us++ * kUs;
  return times;
}

TEST(StepsCsv, RanksComeBeforeStagesInTheVendorsColumns) {
  Results results;
  for (const int rank : {0, 3}) {
    RankResults one;
    one.rank = rank;
    one.set(RankSteps{rank, {.tp = rank, .pp = 1, .dp = 2}, {{.step = 10, .times = times_from(100 * rank + 1)}}});
    results.ranks.push_back(std::move(one));
  }
  ClusterSteps cluster;
  cluster.stages.push_back({10, {0, 3}, times_from(1000)});
  cluster.stages.push_back({11, {3}, times_from(2000)});
  results.set(std::move(cluster));
  EXPECT_EQ(
      steps_csv(results),
      "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
      "Communication(Not Overlapped and Exclude Receive),Preparing,DP Index,PP Index,TP Index\r\n"
      "10,rank,0,1.000,2.000,3.000,4.000,5.000,6.000,7.000,8.000,9.000,2,1,0\r\n"
      "10,rank,3,301.000,302.000,303.000,304.000,305.000,306.000,307.000,308.000,309.000,2,1,3\r\n"
      "10,stage,\"(0, 3)\",1000.000,1001.000,1002.000,1003.000,1004.000,1005.000,1006.000,1007.000,1008.000,,,\r\n"
      "11,stage,\"(3,)\",2000.000,2001.000,2002.000,2003.000,2004.000,2005.000,2006.000,2007.000,2008.000,,,\r\n");
}

TEST(FindingsCsv, DetailsThatHoldCommasAndQuotesAreQuoted) {
  Results results;
  Findings findings(2);
  findings[0] = {.kind = FindingKind::kExposedCommunication,
                 .lost_ns = 1'234'567,
                 .share = 0.125,
                 .worst_rank = 3,
                 .worst_ns = 1'000'001,
                 .detail = "allreduce in \"dp\", 1 MB"};
  findings[1] = {.kind = FindingKind::kIdle, .lost_ns = 1, .share = 1e-9, .worst_rank = 0, .worst_ns = 1};
  results.set(std::move(findings));
  EXPECT_EQ(findings_csv(results),
            "worst_rank,kind,lost_us,share_pct,worst_us,detail\r\n"
            "3,exposed_communication,1234.567,12.5000,1000.001,\"allreduce in \"\"dp\"\", 1 MB\"\r\n"
            "0,idle,0.001,0.0000,0.001,\r\n");
}

TEST(FindingsCsv, NoFindingsIsAHeaderAlone) {
  Results results;
  results.set(Findings());
  EXPECT_EQ(findings_csv(results), "worst_rank,kind,lost_us,share_pct,worst_us,detail\r\n");
}

}  // namespace
}  // namespace ms::profile
