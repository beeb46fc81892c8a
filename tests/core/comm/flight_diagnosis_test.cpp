// Diagnoses of records that no run of a test can leave: dead and stopped processes, missing dumps, other programs'
// dumps.
#include "core/comm/flight_diagnosis.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ms::core {
namespace {

// A dump of a rank in a group of all, which has done `completed` all-reduces and waits in the next.
FlightDump rank_of(int rank, int world, int64_t completed, bool waits = true) {
  FlightDump dump;
  dump.rank = rank;
  dump.world_size = world;
  dump.knows_waits = true;
  FlightGroup& group = dump.groups.emplace_back();
  group.name = "dp_cp";
  for (int member = 0; member < world; ++member) group.ranks.push_back(member);
  for (int64_t i = 0; i < completed + (waits ? 1 : 0); ++i) {
    FlightEntry& entry = dump.entries.emplace_back();
    entry.number = i + 1;
    entry.group = 0;
    entry.op = "allreduce";
    entry.sequence = i;
    entry.shape = entry.agreed = "64";
    entry.dtype = "fp32";
    entry.posted_ns = 1000 * (i + 1) + rank;
    entry.state = i < completed ? FlightState::kCompleted : FlightState::kScheduled;
  }
  if (waits) dump.waits_for = completed + 1;
  return dump;
}

FlightFinding first_of(const std::vector<FlightDump>& dumps, int world_size = 0) {
  const auto findings = diagnose_flight(dumps, world_size);
  EXPECT_FALSE(findings.empty());
  return findings.empty() ? FlightFinding() : findings.front();
}

TEST(FlightDiagnosis, HealthyRanksHaveNoFinding) {
  EXPECT_TRUE(diagnose_flight({rank_of(0, 2, 5, false), rank_of(1, 2, 5, false)}).empty());
  EXPECT_TRUE(diagnose_flight({rank_of(0, 2, 5), rank_of(1, 2, 5)}).empty()) << "both have come to the operation";
}

TEST(FlightDiagnosis, DeadAndStoppedProcessesAreToBlameEvenIfTheyHaveCome) {
  for (const auto& [process, fault] :
       {std::pair(ProcessState::kDead, FlightFault::kDead), std::pair(ProcessState::kStopped, FlightFault::kStopped)}) {
    for (const bool had_come : {false, true}) {
      std::vector<FlightDump> dumps = {rank_of(0, 3, 5), rank_of(1, 3, 5, had_come), rank_of(2, 3, 5)};
      dumps[1].process = process;
      const FlightFinding finding = first_of(dumps);
      EXPECT_EQ(finding.fault, fault);
      EXPECT_EQ(finding.culprits, std::vector<int>{1});
      EXPECT_EQ(finding.direct, (std::vector<int>{0, 2}));
      EXPECT_EQ(operation_text(finding), "allreduce 5 in group dp_cp [0, 1, 2]");
    }
  }
}

TEST(FlightDiagnosis, RankThatHasEndedOrLeftNoRecordIsNamed) {
  std::vector<FlightDump> dumps = {rank_of(0, 2, 5), rank_of(1, 2, 5, false)};
  dumps[1].ended = true;
  EXPECT_EQ(first_of(dumps).fault, FlightFault::kEnded);
  dumps.pop_back();
  const FlightFinding finding = first_of(dumps, 2);
  EXPECT_EQ(finding.fault, FlightFault::kNoRecord);
  EXPECT_EQ(finding.culprits, std::vector<int>{1});
  EXPECT_EQ(finding.sequence, 5);
}

TEST(FlightDiagnosis, OfARunThatHasEndedNoRecordIsMissed) {
  std::vector<FlightDump> dumps = {rank_of(0, 4, 5, false), rank_of(2, 4, 5, false)};
  dumps[0].ended = true;
  EXPECT_EQ(first_of(dumps).culprits, (std::vector<int>{1, 3})) << "rank 2 goes on";
  dumps[1].ended = true;
  EXPECT_TRUE(diagnose_flight(dumps).empty());
}

TEST(FlightDiagnosis, ADeadRankCountsMoreThanOneThatHasNotCome) {
  std::vector<FlightDump> dumps = {rank_of(0, 4, 5), rank_of(1, 4, 5, false), rank_of(2, 4, 5, false),
                                   rank_of(3, 4, 5)};
  dumps[2].process = ProcessState::kDead;
  const auto findings = diagnose_flight(dumps);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].culprits, std::vector<int>{2});
  EXPECT_EQ(findings[1].culprits, std::vector<int>{1});
}

TEST(FlightDiagnosis, MinorityOfAMismatchIsNamed) {
  std::vector<FlightDump> dumps = {rank_of(0, 3, 5), rank_of(1, 3, 5), rank_of(2, 3, 5)};
  dumps[2].entries.back().dtype = "bf16";
  const FlightFinding finding = first_of(dumps);
  EXPECT_EQ(finding.fault, FlightFault::kMismatch);
  EXPECT_EQ(finding.culprits, std::vector<int>{2});
  EXPECT_EQ(finding.seen, "allreduce of 64 bf16");
  EXPECT_EQ(finding.expected, "allreduce of 64 fp32");
}

TEST(FlightDiagnosis, TwoRanksWithoutAHabitAreBothNamed) {
  std::vector<FlightDump> dumps = {rank_of(0, 2, 0), rank_of(1, 2, 0)};
  dumps[1].entries.back().op = "barrier";
  EXPECT_EQ(first_of(dumps).culprits, (std::vector<int>{0, 1}));
}

// Other programs do not say in which operation they wait, and some call failed operations complete.
TEST(FlightDiagnosis, WithoutWaitsTheOperationThatARankLacksCounts) {
  std::vector<FlightDump> dumps = {rank_of(0, 3, 6, false), rank_of(1, 3, 5, false), rank_of(2, 3, 6, false)};
  for (FlightDump& dump : dumps) dump.knows_waits = false;
  const FlightFinding finding = first_of(dumps);
  EXPECT_EQ(finding.fault, FlightFault::kAbsent);
  EXPECT_EQ(finding.culprits, std::vector<int>{1});
  EXPECT_EQ(finding.sequence, 5);
  EXPECT_EQ(finding.direct, (std::vector<int>{0, 2}));
}

// As a damaged dump may have.
TEST(FlightDiagnosis, MessagesOfARankToItselfAreNoMismatch) {
  FlightDump dump = rank_of(0, 2, 0, false);
  for (const bool is_send : {true, false}) {
    FlightEntry& entry = dump.entries.emplace_back();
    entry.number = is_send ? 1 : 2;
    entry.group = 0;
    entry.is_message = true;
    entry.is_send = is_send;
    entry.op = is_send ? "send" : "recv";
    entry.agreed = is_send ? "64" : "32";
    entry.state = FlightState::kCompleted;
  }
  for (const FlightFinding& finding : diagnose_flight({dump}, 2)) EXPECT_NE(finding.fault, FlightFault::kMismatch);
}

// An operation that has been overwritten in the ring of a rank further on is not lacked.
TEST(FlightDiagnosis, OverwrittenOperationsAreNotMissing) {
  std::vector<FlightDump> dumps = {rank_of(0, 2, 9), rank_of(1, 2, 9)};
  dumps[1].entries.erase(dumps[1].entries.begin(), dumps[1].entries.begin() + 8);
  EXPECT_TRUE(diagnose_flight(dumps).empty());
}

}  // namespace
}  // namespace ms::core
