// Every analysis on traces whose results are known in closed form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

using test::TraceMaker;
using testing::ElementsAre;

class AnalysisTest : public testing::Test {
 protected:
  const Results& analyse(const std::vector<int64_t>& steps = {}) {
    store_ = load({folder_.path().string()}, {});
    AnalysisOptions options;
    options.steps = steps;
    results_ = analyze(store_, sections::every(), options);
    return results_;
  }
  TraceMaker maker(int rank = 0, int world_size = 1) { return {folder_.path(), rank, world_size}; }

  test::TemporaryFolder folder_;
  Store store_;
  Results results_;
};

// time   0    10   20   30   40   50   60   70   80   90  100
//  C      .    CCCCCCCCCC.    .    CCCCC.    .    .    .
//  N      .    .    NNNNNNNNNNNNNNN.    .    .    .    .
//  M      .    .    .    .    .    .    MMMMM.    MMMMM          (the second overlaps nothing)
void write_known_step(TraceMaker& maker) {
  maker.host("ProfilerStep#7", 0, 100);
  maker.kernel("gemm", 10, 30);
  maker.comm("allreduce", "tp", {0, 1}, 20, 50);
  maker.kernel("gemm", 45, 55);
  maker.copy("Memcpy DtoH (Device -> Pinned)", 60, 70, 1000);
  maker.copy("Memcpy DtoH (Device -> Pinned)", 80, 90, 3000);
}

TEST_F(AnalysisTest, BreakdownOfAKnownStep) {
  TraceMaker one = maker();
  write_known_step(one);
  one.finish();
  const Breakdown b = analyse().ranks.at(0).at<Breakdown>();
  EXPECT_EQ(b.span, 80);       // 10 .. 90
  EXPECT_EQ(b.computing, 30);  // 20 + 10
  EXPECT_EQ(b.communication, 30);
  EXPECT_EQ(b.exposed_communication, 15);  // 30 .. 45
  EXPECT_EQ(b.overlap, 15);
  EXPECT_EQ(b.memory, 20);
  EXPECT_EQ(b.exposed_memory, 20);
  EXPECT_EQ(b.busy, 65);
  EXPECT_EQ(b.idle, 15);
  EXPECT_EQ(b.events, 5);
  EXPECT_EQ(b.computing + b.exposed_communication + b.exposed_memory + b.idle, b.span);
}

TEST_F(AnalysisTest, KernelTypesAddUpToBusy) {
  TraceMaker one = maker();
  write_known_step(one);
  one.copy("Memset", 15, 50, 10);  // overlaps computing, then both, then communication
  one.finish();
  const RankResults& rank = analyse().ranks.at(0);
  std::map<std::string, int64_t> types;
  int64_t sum = 0;
  for (const KernelType& type : rank.at<std::vector<KernelType>>()) {
    types[type.classes] = type.ns;
    sum += type.ns;
  }
  EXPECT_EQ(sum, rank.at<Breakdown>().busy);
  EXPECT_EQ(types["COMPUTATION"], 5 + 5);                                            // 10..15, 50..55
  EXPECT_EQ(types["COMPUTATION overlapping MEMORY"], 5);                             // 15..20
  EXPECT_EQ(types["COMPUTATION overlapping COMMUNICATION overlapping MEMORY"], 15);  // 20..30, 45..50
  EXPECT_EQ(types["COMMUNICATION overlapping MEMORY"], 15);                          // 30..45
  EXPECT_EQ(types["MEMORY"], 20);
  EXPECT_EQ(types.size(), 5u);
}

TEST_F(AnalysisTest, KernelsByNameWithExactStatistics) {
  TraceMaker one = maker();
  one.kernel("gemm", 0, 10, 0, 600, 60);
  one.kernel("gemm", 20, 40, 0, 1200, 120);
  one.kernel("gemm", 50, 80);
  one.kernel("norm", 100, 160);
  one.comm("allreduce", "dp", {0, 1}, 200, 300, 8);
  one.finish();
  const auto& rows = analyse().ranks.at(0).at<std::vector<KernelRow>>();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "allreduce(dp)");
  EXPECT_EQ(rows[0].device_class, DeviceClass::kCommunication);
  EXPECT_EQ(rows[0].std_ns, 0);
  EXPECT_EQ(rows[1].name, "gemm");  // 60 ns like norm: sorted by name
  EXPECT_EQ(rows[1].count, 3);
  EXPECT_EQ(rows[1].sum_ns, 60);
  EXPECT_EQ(rows[1].min_ns, 10);
  EXPECT_EQ(rows[1].max_ns, 30);
  EXPECT_EQ(rows[1].mean_ns, 20);
  EXPECT_EQ(rows[1].std_ns, 10);
  EXPECT_EQ(rows[1].flops, 1800);
  EXPECT_EQ(rows[1].flops_ns, 30);  // of the two that have FLOPs
  EXPECT_EQ(rows[2].flops, -1);
}

TEST_F(AnalysisTest, StepTableOfAKnownStep) {
  TraceMaker one = maker(0, 2);
  write_known_step(one);
  one.comm("recv", "pp", {0, 1}, 56, 59, 4, 1);
  one.finish();
  const auto& rows = analyse().ranks.at(0).at<RankSteps>().rows;
  ASSERT_EQ(rows.size(), 1u);
  const StepTimes& t = rows[0].times;
  EXPECT_EQ(rows[0].step, 7);
  EXPECT_EQ(rows[0].host_ns, 100);
  EXPECT_EQ(t.computing, 30);
  EXPECT_EQ(t.communication, 33);
  EXPECT_EQ(t.overlapped, 15);
  EXPECT_EQ(t.communication_not_overlapped, 18);
  EXPECT_EQ(t.free, 90 - 48);  // START 10, END 100: the annotation ends last
  EXPECT_EQ(t.bubble, 3);
  EXPECT_EQ(t.stage, 87);
  EXPECT_EQ(t.communication_not_overlapped_exclude_receive, 15);
  EXPECT_EQ(t.preparing, 10);
  EXPECT_EQ(t.computing + t.communication_not_overlapped + t.free + t.preparing, rows[0].host_ns);
}

TEST_F(AnalysisTest, AnEventBelongsToTheStepOfItsLaunch) {
  TraceMaker one = maker();
  one.host("ProfilerStep#1", 0, 100);
  one.host("ProfilerStep#2", 100, 200);
  one.launch(5, 90, 95);
  one.kernel("late", 110, 130, 5);  // launched in step 1, runs in step 2
  one.kernel("own", 150, 160);      // no launch: by its own start
  one.kernel("outside", 300, 310);
  one.finish();
  const RankResults& rank = analyse().ranks.at(0);
  ASSERT_EQ(rank.at<PerStep>().rows.size(), 2u);
  EXPECT_EQ(rank.at<PerStep>().rows[0].devices->computing, 20);
  EXPECT_EQ(rank.at<PerStep>().rows[1].devices->computing, 10);
  EXPECT_EQ(rank.at<PerStep>().devices_outside_steps, 1);
  EXPECT_EQ(rank.at<Facts>().device_events_with_launch, 1);
  EXPECT_EQ(rank.at<RankSteps>().rows[0].times.preparing, 110);
  EXPECT_EQ(rank.at<RankSteps>().rows[0].times.free, 0);  // START 110, END 130
}

TEST_F(AnalysisTest, StepsCanBeChosen) {
  TraceMaker one = maker();
  for (int64_t s = 0; s < 4; ++s) {
    one.host(core::cat("ProfilerStep#", 10 + s), 100 * s, 100 * s + 90);
    one.kernel("gemm", 100 * s + 10, 100 * s + 20 + s);
  }
  one.finish();
  EXPECT_EQ(analyse({11, 12}).ranks.at(0).at<Breakdown>().computing, 11 + 12);
  EXPECT_EQ(results_.ranks.at(0).at<Facts>().steps, (std::vector<int64_t>{11, 12}));
  try {
    analyse({14});
    FAIL() << "there is no step 14";
  } catch (const core::Error& e) {
    EXPECT_EQ(e.code(), core::ErrorCode::kNotFound);
    EXPECT_THAT(e.what(), testing::HasSubstr("10 to 13"));
  }
}

TEST_F(AnalysisTest, FindingsInOrderOfLostTime) {
  // Rank 0 computes 400 of 1000, rank 1 700; each idle instant has one cause.
  for (const int rank : {0, 1}) {
    TraceMaker one = maker(rank, 2);
    one.host("ProfilerStep#1", 0, 1000);
    one.kernel("gemm", 0, rank == 0 ? 400 : 700);
    one.comm("allreduce", "dp", {0, 1}, rank == 0 ? 400 : 700, 750);
    one.host("data", 750, 850);
    one.host("ckpt.snapshot", 840, 900);
    one.host("ckpt.write", 0, 1000, /*thread=*/200);  // a writer thread stalls nothing
    one.kernel("gemm", 990, 1000);
    one.finish();
  }
  const Results& results = analyse();
  std::vector<std::pair<FindingKind, int64_t>> seen;
  for (const Finding& finding : results.at<Findings>()) seen.emplace_back(finding.kind, finding.lost_ns);
  EXPECT_THAT(
      seen, ElementsAre(std::pair(FindingKind::kWaiting, int64_t{300}),
                        std::pair(FindingKind::kDataLoading, int64_t{200}), std::pair(FindingKind::kIdle, int64_t{180}),
                        std::pair(FindingKind::kExposedCommunication, int64_t{50 + 50}),
                        std::pair(FindingKind::kCheckpoint, int64_t{100})));
  EXPECT_EQ(results.at<Findings>()[0].worst_rank, 1);
  EXPECT_DOUBLE_EQ(results.at<Findings>()[0].share, 0.15);
  EXPECT_EQ(results.at<Imbalance>().slowest_rank, 1);
  EXPECT_DOUBLE_EQ(results.at<Imbalance>().load_balance, (410.0 + 710.0) / 2 / 710.0);
  const auto& spread = results.at<ClusterSteps>().spread.at(0);
  EXPECT_DOUBLE_EQ(spread.computing, 300.0 / 560.0);
}

// a writer thread stalls nothing
TEST_F(AnalysisTest, IdleBeforeTheFirstAndAfterTheLastKernelOfAStepIsLost) {
  TraceMaker one = maker();
  one.host("ProfilerStep#1", 0, 100);
  one.op("aten::nonzero", 5, 25);
  one.launch(1, 30, 38);
  one.kernel("gemm", 40, 60, 1);
  one.finish();
  const Results& results = analyse();
  EXPECT_EQ(results.at<JobTime>().wall_ns, 100);
  EXPECT_EQ(results.at<JobTime>().computing_ns, 20);
  std::map<IdleCause, int64_t> lost;
  for (const Finding& finding : results.at<Findings>()) {
    ASSERT_EQ(finding.kind, FindingKind::kIdle);
    lost[finding.cause] += finding.lost_ns;
  }
  // 5..25: a call that waits for the device; 25..38: a short pause and the launch; 38..40: until the kernel starts; the
  // rest is unknown.
  EXPECT_THAT(lost, ElementsAre(std::pair(IdleCause::kHostWork, 13), std::pair(IdleCause::kSynchronisation, 20),
                                std::pair(IdleCause::kLaunchLatency, 2), std::pair(IdleCause::kUnknown, 5 + 40)));
  const IdleReasons& idle = results.ranks.at(0).at<IdleReasons>();
  EXPECT_EQ(idle.idle_ns, 80);
  int64_t sum = 0;
  for (const IdleReason& reason : idle.reasons) sum += reason.ns;
  EXPECT_EQ(sum, 80) << "no moment counts twice, none is left out";
}

// Without device events, operators count as computing and communicator calls as communication. Of nested operators the
// outermost counts whose children cover less than half of it.
TEST_F(AnalysisTest, CpuOnlyTraceIsAnalysedByItsOperators) {
  for (int rank = 0; rank < 2; ++rank) {
    TraceMaker one = maker(rank, 2);
    const int64_t end = rank == 0 ? 30 : 60;
    one.host("ProfilerStep#1", 0, 100);
    one.op("aten::linear", 10, end);
    one.op("aten::addmm", 11, end - 1);
    one.op("aten::copy_", 12, 14);
    one.op("c10d::allreduce_", end, end + 2);
    one.host("gloo:all_reduce", end + 1, 70, /*thread=*/200);
    one.op("aten::div_", 65, 69, {}, {}, /*thread=*/200);  // on the communicator's own thread
    one.finish();
  }
  const Results& results = analyse();
  const RankResults& rank = results.ranks.at(0);
  EXPECT_EQ(rank.at<Breakdown>().computing, 18) << "aten::addmm";
  EXPECT_EQ(rank.at<Breakdown>().communication, 39);
  EXPECT_EQ(rank.at<Breakdown>().exposed_communication, 39);
  EXPECT_EQ(rank.at<std::vector<KernelRow>>().at(0).name, "gloo:all_reduce");
  EXPECT_EQ(rank.at<std::vector<KernelRow>>().at(1).name, "aten::addmm");
  EXPECT_EQ(rank.at<Facts>().device_events, 0);
}

TEST_F(AnalysisTest, StagesAreRanksOfOnePipelinePosition) {
  // 4 ranks, tp 2, pp 2: pp groups [0, 2] and [1, 3].
  for (int rank = 0; rank < 4; ++rank) {
    TraceMaker one = maker(rank, 4);
    one.host("ProfilerStep#1", 0, 100);
    one.kernel("gemm", 0, 10 + rank);
    const std::vector<int> tp = rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    one.comm("allreduce", "tp", tp, 20, 30);
    one.comm(rank < 2 ? "send" : "recv", "pp", {rank % 2, rank % 2 + 2}, 30, 40, 1, (rank + 2) % 4);
    one.finish();
  }
  const Results& results = analyse();
  EXPECT_EQ(results.ranks[3].at<RankSteps>().layout.pp, 1);
  EXPECT_EQ(results.ranks[3].at<RankSteps>().layout.tp, 1);
  EXPECT_EQ(results.ranks[0].at<RankSteps>().layout.pp, 0);
  ASSERT_EQ(results.at<ClusterSteps>().stages.size(), 2u);
  EXPECT_THAT(results.at<ClusterSteps>().stages[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(results.at<ClusterSteps>().stages[1].ranks, ElementsAre(2, 3));
  EXPECT_EQ(results.at<ClusterSteps>().stages[1].times.computing, 13);
  EXPECT_EQ(results.at<ClusterSteps>().stages[1].times.bubble, 10);
  EXPECT_EQ(results.at<ClusterSteps>().stages[0].times.bubble, 0);
}

TEST_F(AnalysisTest, WithoutDeviceEventsItSaysWhy) {
  TraceMaker one = maker();
  one.host("ProfilerStep#1", 0, 100);
  one.finish();
  const Results& results = analyse();
  EXPECT_EQ(results.ranks.at(0).get<Breakdown>(), nullptr);
  EXPECT_THAT(results.warnings, ElementsAre(testing::HasSubstr("no device events")));
  EXPECT_TRUE(results.at<Findings>().empty());
}

TEST_F(AnalysisTest, EpochNanosecondsStayExact) {
  const int64_t epoch = 1'736'408'883'696'741'123;
  TraceMaker one = maker();
  one.kernel("a", epoch, epoch + 1);
  one.kernel("b", epoch + 3, epoch + 7);
  one.finish();
  const Breakdown b = analyse().ranks.at(0).at<Breakdown>();
  EXPECT_EQ(b.span, 7);
  EXPECT_EQ(b.computing, 5);
}

TEST(DeviceClassOfAName, FollowsTheRules) {
  const std::pair<const char*, DeviceClass> cases[] = {
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", DeviceClass::kCommunication},
      {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", DeviceClass::kCommunication},
      {"void foo::ncclDevKernelWrapper()", DeviceClass::kCommunication},
      {"hcom_allReduce__586_0_1@group", DeviceClass::kCommunication},
      {"void cross_device_reduce_1stage<float>", DeviceClass::kCommunication},
      {"Memcpy HtoD (Pageable -> Device)", DeviceClass::kMemory},
      {"Memset (Device)", DeviceClass::kMemory},
      {"hipMemcpyAsync", DeviceClass::kMemory},
      {"CopyBuffer", DeviceClass::kMemory},
      {"void gemm_memcpy_like()", DeviceClass::kComputation},
      {"volta_sgemm_128x64_nn", DeviceClass::kComputation},
      {"hipblas_gemm", DeviceClass::kComputation},
      {"", DeviceClass::kComputation}};
  for (const std::string_view name :
       {"multimem_all_reduce_kernel<float>", "void deep_ep::intranode::dispatch<4>", "nvshmemi_proxy_quiet",
        "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
        "quickreduce::allreduce_prototype"}) {
    EXPECT_EQ(class_of_name(name), DeviceClass::kCommunication) << name;
  }
  for (const auto& [name, wanted] : cases) EXPECT_EQ(class_of_name(name), wanted) << name;
}

}  // namespace
}  // namespace ms::profile
