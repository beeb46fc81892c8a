// Findings as sentences: every number comes from the finding, and each says what to do.
#include "profile/report/finding_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "profile/analysis/cross_rank.h"
#include "profile/analysis/recorder.h"

namespace ms::profile {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;
constexpr int kCauses = static_cast<int>(IdleCause::kUnknown) + 1;
constexpr int kKinds = static_cast<int>(FindingKind::kSlowLink) + 1;

Results results_of(int ranks, bool on_host = false) {
  Results results;
  results.ranks.resize(static_cast<size_t>(ranks));
  results.views.resize(static_cast<size_t>(ranks));
  for (DeviceView& view : results.views) view.on_host = on_host;
  results.set(CrossRank());
  return results;
}

Finding lost(FindingKind kind, int rank, int64_t worst_ns, std::string detail = {}) {
  return {.kind = kind, .lost_ns = 2 * worst_ns, .worst_rank = rank, .worst_ns = worst_ns, .detail = std::move(detail)};
}

Finding idle(IdleCause cause, std::string detail, std::string where) {
  Finding finding = lost(FindingKind::kIdle, 0, kMs, std::move(detail));
  finding.cause = cause;
  finding.where = std::move(where);
  return finding;
}

TEST(FindingSentence, NamesTheWorstRankOnlyAmongSeveral) {
  const Finding finding = lost(FindingKind::kExposedMemory, 3, 2'500'000);
  EXPECT_EQ(sentence(finding, results_of(4)), "copies that nothing hides; most on rank 3 (2.50 ms)");
  EXPECT_EQ(sentence(finding, results_of(1)), "copies that nothing hides");
}

TEST(FindingSentence, DetailFollowsWithAReadableName) {
  EXPECT_EQ(sentence(lost(FindingKind::kDataLoading, 0, kMs, "enumerate(DataLoader)#_Iter.__next__"), results_of(1)),
            "waiting for data; mainly enumerate(DataLoader)#_Iter.__next__");
  EXPECT_EQ(sentence(lost(FindingKind::kExposedMemory, 0, kMs, "void at::native::copy_kernel<4>(int)"), results_of(1)),
            "copies that nothing hides; mainly copy_kernel<4>");
}

TEST(FindingSentence, DetailOfCommunicationIsNotCut) {
  const std::string detail(120, 'x');
  EXPECT_THAT(sentence(lost(FindingKind::kExposedCommunication, 0, kMs, detail), results_of(1)), HasSubstr(detail));
}

TEST(FindingSentence, WaitingTellsItsBlameWhereThatIsAnotherNumber) {
  Results results = results_of(2);
  CrossRank cross;
  cross.by_rank[1].blame = 3 * kMs;
  results.set(cross);
  EXPECT_EQ(sentence(lost(FindingKind::kWaiting, 1, 2 * kMs), results),
            "waiting for ranks that come late: rank 1 causes 2.00 ms (its blame, with waits that computing hides: 3.00 "
            "ms)");
  EXPECT_EQ(sentence(lost(FindingKind::kWaiting, 1, 3 * kMs, "it computes longer"), results),
            "waiting for ranks that come late: rank 1 causes 3.00 ms; it computes longer");
  EXPECT_EQ(sentence(lost(FindingKind::kWaiting, 0, kMs), results),
            "waiting for ranks that come late: rank 0 causes 1.00 ms")
      << "a rank that blame does not know";
}

TEST(FindingSentence, IdlePlaceHasTheWordOfItsCause) {
  const Results results = results_of(1);
  EXPECT_THAT(sentence(idle(IdleCause::kHostWork, "aten::add", "nn.Module: Linear_0"), results),
              HasSubstr("; mainly aten::add; most in nn.Module: Linear_0"));
  EXPECT_THAT(sentence(idle(IdleCause::kDependency, "gemm", "forward"), results),
              HasSubstr("; mainly gemm; most during forward"));
  EXPECT_THAT(sentence(idle(IdleCause::kUnknown, "", "before aten::add"), results),
              HasSubstr("; most before aten::add"));
  EXPECT_THAT(sentence(idle(IdleCause::kHostWork, "", ""), results), Not(HasSubstr("most")));
}

TEST(FindingSentence, IdleOfACpuDoesNotSpeakOfADevice) {
  for (int cause = 0; cause < kCauses; ++cause) {
    const Finding finding = idle(static_cast<IdleCause>(cause), "", "");
    EXPECT_THAT(sentence(finding, results_of(1, true)), Not(HasSubstr("device"))) << cause;
    EXPECT_THAT(sentence(finding, results_of(1, true)), HasSubstr("no operator computes")) << cause;
  }
}

TEST(FindingSentence, EachIdleCauseHasItsOwn) {
  std::set<std::string> seen;
  for (int cause = 0; cause < kCauses; ++cause) {
    EXPECT_TRUE(seen.insert(sentence(idle(static_cast<IdleCause>(cause), "", ""), results_of(1))).second) << cause;
  }
}

TEST(FindingRemedy, EveryFindingEndsInWhatToDoAndWhichVerbShowsMore) {
  const std::set<std::string_view> verbs = {
      "breakdown --per-step", "idle", "kernels", "ranks", "pipeline", "links", "steps"};
  for (int kind = 0; kind < kKinds; ++kind) {
    Finding finding = lost(static_cast<FindingKind>(kind), 0, kMs);
    for (int cause = 0; cause < kCauses; ++cause) {
      finding.cause = static_cast<IdleCause>(cause);
      EXPECT_FALSE(remedy(finding, results_of(1)).empty()) << kind << " " << cause;
      EXPECT_FALSE(remedy(finding, results_of(1, true)).empty()) << kind << " " << cause;
    }
    EXPECT_EQ(verbs.count(verb_of(finding.kind)), 1u) << kind;
  }
}

TEST(FindingRemedy, OfMstrainNamesItsFlags) {
  Results own = results_of(1, true);
  own.set(TraceRecorder{.is_mstrain = true});
  Results with_kernels = results_of(1);  // as --profile-with-cpu records: operators, and what they launch
  with_kernels.set(TraceRecorder{.is_mstrain = true});
  EXPECT_THAT(remedy(lost(FindingKind::kExposedMemory, 0, kMs), own), HasSubstr("--swap-min-tensor-kib"));
  EXPECT_THAT(remedy(idle(IdleCause::kUnknown, "", ""), own), HasSubstr("--profile-with-cpu"));
  EXPECT_THAT(remedy(lost(FindingKind::kExposedMemory, 0, kMs), results_of(1)), HasSubstr("pinned memory"));
  for (int kind = 0; kind < kKinds; ++kind) {
    Finding finding = lost(static_cast<FindingKind>(kind), 0, kMs);
    for (int cause = 0; cause < kCauses; ++cause) {
      finding.cause = static_cast<IdleCause>(cause);
      for (Results* results : {&own, &with_kernels}) {
        for (const char* foreign : {"CUDA", "activities", "pin", "torch", "graph"})
          EXPECT_THAT(remedy(finding, *results), Not(HasSubstr(foreign))) << kind << " " << cause;
      }
    }
  }
}

TEST(FindingRemedy, FitsTheDevice) {
  Results npu = results_of(1);
  npu.set(TraceRecorder{.is_ascend = true});
  EXPECT_THAT(remedy(idle(IdleCause::kHostWork, "", ""), results_of(1)), HasSubstr("CUDA graph"));
  EXPECT_THAT(remedy(idle(IdleCause::kLaunchLatency, "", ""), npu), HasSubstr("NPU graph"));
  for (int cause = 0; cause < kCauses; ++cause) {
    const Finding finding = idle(static_cast<IdleCause>(cause), "", "");
    EXPECT_THAT(remedy(finding, npu), Not(HasSubstr("CUDA"))) << cause;
    for (const char* foreign : {"CUDA", "NPU", "graph", "kernel", "pin", "device"})
      EXPECT_THAT(remedy(finding, results_of(1, true)), Not(HasSubstr(foreign))) << cause;
  }
}

}  // namespace
}  // namespace ms::profile
