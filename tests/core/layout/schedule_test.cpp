#include "core/layout/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/layout/schedule_check.h"

namespace ms::layout {
namespace {

TEST(Schedule1f1b, OneStageAlternates) {
  const auto actions = schedule_1f1b(0, 1, 2);
  const std::vector<ScheduleAction> expected = {{ScheduleAction::kForward, 0},
                                                {ScheduleAction::kBackward, 0},
                                                {ScheduleAction::kForward, 1},
                                                {ScheduleAction::kBackward, 1}};
  EXPECT_EQ(actions, expected);
}

TEST(Schedule1f1b, HoldsAtMostStagesMinusStage) {
  for (int stages : {1, 2, 4, 7}) {
    for (int64_t m : {1, 2, 3, 8}) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(peak_in_flight(schedule_1f1b(stage, stages, m)), std::min<int64_t>(m, stages - stage));
      }
    }
  }
}

TEST(Schedule1f1b, RunsEveryMicrobatchOnceInOrder) {
  for (int stage = 0; stage < 3; ++stage) {
    int64_t forwards = 0, backwards = 0;
    for (const ScheduleAction& action : schedule_1f1b(stage, 3, 5)) {
      int64_t& next = action.kind == ScheduleAction::kForward ? forwards : backwards;
      EXPECT_EQ(action.microbatch, next++);
      EXPECT_LE(backwards, forwards);
    }
    EXPECT_EQ(forwards, 5);
    EXPECT_EQ(backwards, 5);
  }
}

double makespan(int stages, int chunks, int64_t microbatches) {
  PipelineSchedule schedule{Placement::even(stages, chunks, int64_t{stages} * chunks), microbatches, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(stage, stages, chunks, microbatches));
  const ScheduleReport report = check_schedule(schedule);
  EXPECT_EQ(report.fault, "") << stages << " x " << chunks << ", " << microbatches;
  return report.makespan;
}

TEST(Schedule1f1b, IsIdleForStagesMinusOneMicrobatches) {
  for (int stages : {1, 2, 3, 5}) {
    for (int64_t m : {1, 2, 6}) {
      EXPECT_EQ(makespan(stages, 1, m), 3.0 * static_cast<double>(m + stages - 1));
    }
  }
}

TEST(ScheduleInterleaved, TwoStagesTwoChunksFourMicrobatches) {
  // Written by hand from Megatron's rules: forwards in rounds of two micro-batches per chunk, 2 (p - 1 - i) + (v - 1) p
  // to warm up.
  const auto f = [](int64_t microbatch, int chunk) {
    return ScheduleAction{ScheduleAction::kForward, microbatch, chunk};
  };
  const auto b = [](int64_t microbatch, int chunk) {
    return ScheduleAction{ScheduleAction::kBackward, microbatch, chunk};
  };
  const std::vector<ScheduleAction> first = {f(0, 0), f(1, 0), f(0, 1), f(1, 1), f(2, 0), b(0, 1), f(3, 0), b(1, 1),
                                             f(2, 1), b(0, 0), f(3, 1), b(1, 0), b(2, 1), b(3, 1), b(2, 0), b(3, 0)};
  const std::vector<ScheduleAction> second = {f(0, 0), f(1, 0), f(0, 1), b(0, 1), f(1, 1), b(1, 1), f(2, 0), b(0, 0),
                                              f(3, 0), b(1, 0), f(2, 1), b(2, 1), f(3, 1), b(3, 1), b(2, 0), b(3, 0)};
  EXPECT_EQ(schedule_interleaved(0, 2, 2, 4), first);
  EXPECT_EQ(schedule_interleaved(1, 2, 2, 4), second);
}

TEST(ScheduleInterleaved, WarmsUpByMegatronsFormulaAndHoldsOneMore) {
  for (int stages : {2, 4}) {
    for (int chunks : {2, 3}) {
      for (int64_t m : {1 * stages, 2 * stages, 5 * stages}) {
        for (int stage = 0; stage < stages; ++stage) {
          const int64_t warmup = std::min<int64_t>(2 * (stages - stage - 1) + (chunks - 1) * stages, m * chunks);
          const auto actions = schedule_interleaved(stage, stages, chunks, m);
          const auto backward = std::find_if(actions.begin(), actions.end(), [](const ScheduleAction& action) {
            return action.kind == ScheduleAction::kBackward;
          });
          const int64_t before = std::min<int64_t>(warmup + 1, m * chunks);
          EXPECT_EQ(backward - actions.begin(), before);
          EXPECT_EQ(peak_in_flight(actions), before);
        }
      }
    }
  }
}

TEST(ScheduleInterleaved, RunsEachChunkOfEachMicrobatchOnceInOrder) {
  // In order, so that gradients are added in the same order as without chunks.
  for (int stage = 0; stage < 4; ++stage) {
    std::map<std::pair<int, int>, int64_t> next;  // (kind, chunk) -> micro-batch
    for (const ScheduleAction& action : schedule_interleaved(stage, 4, 3, 8)) {
      EXPECT_EQ(action.microbatch, (next[{action.kind, action.chunk}]++));
      EXPECT_LE((next[{ScheduleAction::kBackward, action.chunk}]), (next[{ScheduleAction::kForward, action.chunk}]));
    }
    EXPECT_EQ(next.size(), 6U);
    for (const auto& [what, count] : next) EXPECT_EQ(count, 8);
  }
}

TEST(ScheduleInterleaved, DividesTheIdleTimeByTheChunks) {
  // A chunk is 1 / v of a stage's work, so a stage is idle for p - 1 micro-batches of a chunk: 1 / v of 1F1B's idle
  // time.
  for (int stages : {2, 3, 4}) {
    for (int chunks : {1, 2, 4}) {
      for (int64_t m : {2 * stages, 4 * stages}) {
        EXPECT_EQ(makespan(stages, chunks, m), 3.0 * static_cast<double>(m * chunks + stages - 1));
      }
    }
  }
}

TEST(ScheduleForwardOnly, IsTheForwardsOfTraining) {
  for (int chunks : {1, 3}) {
    std::vector<ScheduleAction> forwards;
    for (const ScheduleAction& action : schedule_interleaved(1, 2, chunks, 4)) {
      if (action.kind == ScheduleAction::kForward) forwards.push_back(action);
    }
    EXPECT_EQ(schedule_forward_only(2, chunks, 4), forwards);
  }
}

}  // namespace
}  // namespace ms::layout
