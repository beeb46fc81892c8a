// The table of sections: names, order, and dependencies, which are computed but not shown.
#include "profile/sections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "profile/analysis/check.h"
#include "profile/ingest/load.h"
#include "profile/report/json_report.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

constexpr int64_t kMs = 1'000'000;

class SectionsTest : public testing::Test {
 protected:
  // Two ranks, one step of 10 ms: 4 or 6 ms of computing, an all-reduce that ends at 8 ms.
  SectionsTest() {
    for (int rank = 0; rank < 2; ++rank) {
      test::TraceMaker maker(folder_.path(), rank, 2);
      const int64_t computed = (4 + 2 * rank) * kMs;
      maker.clock(0, 0, 10);
      maker.clock(10 * kMs, 0, 10);
      maker.host("ProfilerStep#1", 0, 10 * kMs);
      maker.kernel("gemm", 0, computed);
      maker.comm("allreduce", "dp", {0, 1}, computed, 8 * kMs, 1000);
      maker.finish();
    }
    store_ = load({folder_.path().string()}, {});
  }
  test::TemporaryFolder folder_;
  Store store_;
};

TEST_F(SectionsTest, NamesAreUnique) {
  std::set<std::string> names;
  for (const Section* section : sections::every()) EXPECT_TRUE(names.insert(section->name).second) << section->name;
}

TEST_F(SectionsTest, WhatASectionNeedsComesBeforeIt) {
  std::set<const Section*> before;
  for (const Section* section : sections::every()) {
    for (const Section* needed : section->needs) EXPECT_EQ(before.count(needed), 1u) << section->name;
    before.insert(section);
  }
}

TEST_F(SectionsTest, EachSectionShowsSomethingOrComputesForOthers) {
  std::set<const Section*> needed;
  for (const Section* section : sections::every()) needed.insert(section->needs.begin(), section->needs.end());
  for (const Section* section : sections::every()) {
    const bool shows = !section->tables.empty() || section->write_rank != nullptr || section->write_job != nullptr ||
                       section->csv != nullptr;
    EXPECT_TRUE(shows || needed.count(section) == 1) << section->name;
    EXPECT_EQ(section->csv == nullptr, section->csv_name == nullptr) << section->name;
  }
}

TEST_F(SectionsTest, OnDemandSectionsAreNotInEvery) {
  const Sections& every = sections::every();
  EXPECT_EQ(std::count(every.begin(), every.end(), &sections::kTensorboardSteps), 0);
}

TEST_F(SectionsTest, AnalyzeComputesWhatIsAskedForAndWhatThatNeeds) {
  const Results results = analyze(store_, {&sections::kRanks});
  EXPECT_EQ(results.sections, Sections{&sections::kRanks});
  EXPECT_EQ(results.at<CrossRank>().by_rank.at(1).blame, 2 * kMs) << "rank 0 waits from 4 to 6 ms";
  ASSERT_EQ(results.ranks.size(), 2u);
  EXPECT_EQ(results.ranks[0].get<Breakdown>(), nullptr);
  EXPECT_EQ(results.get<Findings>(), nullptr);
}

TEST_F(SectionsTest, EveryHoldsTheResultsThatTheHeaderNames) {
  const Results results = analyze(store_, sections::every());
  ASSERT_EQ(results.ranks.size(), 2u);
  for (const RankResults& rank : results.ranks) {
    EXPECT_NE(rank.get<Facts>(), nullptr);
    EXPECT_NE(rank.get<PerStep>(), nullptr);
    EXPECT_NE(rank.get<std::vector<KernelType>>(), nullptr);
    EXPECT_NE(rank.get<std::vector<KernelRow>>(), nullptr);
    EXPECT_NE(rank.get<std::vector<OperatorRow>>(), nullptr);
    EXPECT_NE(rank.get<std::vector<QueueLength>>(), nullptr);
    EXPECT_NE(rank.get<std::vector<StreamIdle>>(), nullptr);
    EXPECT_NE(rank.get<IdleReasons>(), nullptr);
    EXPECT_NE(rank.get<MemoryUse>(), nullptr);
    EXPECT_NE(rank.get<RankSteps>(), nullptr);
    EXPECT_NE(rank.get<std::vector<AscendStep>>(), nullptr);
    EXPECT_EQ(rank.get<LaunchStats>(), nullptr) << "the trace has no launches";
    EXPECT_EQ(rank.get<std::vector<TensorboardStep>>(), nullptr) << "on demand";
    // 8 ms from the first start to the last end, of which 4 or 6 are computing.
    const auto& breakdown = rank.at<Breakdown>();
    EXPECT_EQ(breakdown.span, 8 * kMs);
    EXPECT_EQ(breakdown.computing, (4 + 2 * rank.rank) * kMs);
  }
  EXPECT_NE(results.get<ClusterSteps>(), nullptr);
  EXPECT_NE(results.get<MatchedComms>(), nullptr);
  EXPECT_NE(results.get<Pop>(), nullptr);
  EXPECT_EQ(results.get<Pipeline>(), nullptr) << "the trace has no pipeline";
  // Two steps of 10 ms, 4 + 6 ms of computing.
  EXPECT_EQ(results.at<JobTime>().wall_ns, 20 * kMs);
  EXPECT_EQ(results.at<JobTime>().computing_ns, 10 * kMs);
  EXPECT_DOUBLE_EQ(results.at<Imbalance>().load_balance, 5.0 / 6);
  EXPECT_FALSE(results.at<Findings>().empty());
}

TEST_F(SectionsTest, ResultsDoNotDependOnTheNumberOfThreads) {
  AnalysisOptions options;
  const std::string one = json_report(store_, analyze(store_, sections::every(), options), {});
  options.threads = 5;  // more than ranks: sections of a rank run at the same time
  for (int run = 0; run < 10; ++run) {
    EXPECT_EQ(json_report(store_, analyze(store_, sections::every(), options), {}), one);
  }
}

TEST_F(SectionsTest, ForCheckAnswersEveryThreshold) {
  Thresholds thresholds;
  thresholds.max_exposed_comm = thresholds.max_exposed_memory = thresholds.max_idle = thresholds.max_slow_rank =
      thresholds.min_overlap = thresholds.min_parallel_efficiency = thresholds.max_step_ms = thresholds.max_slowdown =
          1;
  const Results results = analyze(store_, sections::for_check());
  const Results baseline = analyze(store_, {&sections::kSteps});
  EXPECT_EQ(check_thresholds(results, &baseline, thresholds).size(), 8u);
  thresholds.max_bubble = 1;
  EXPECT_EQ(test::code_of([&] { check_thresholds(results, &baseline, thresholds); }), core::ErrorCode::kInvalidArgument)
      << "a gate that checks nothing would always be open";
}

}  // namespace
}  // namespace ms::profile
