#include "train/parallel/schedule.h"

#include <gtest/gtest.h>

#include <map>

namespace ms::train {
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

TEST(Schedule1f1b, NeverDeadlocks) {
  // Runs the stages' lists against each other: an action may run when its input is there.
  for (int stages : {2, 3, 5}) {
    for (int64_t m : {1, 2, 6}) {
      std::vector<std::vector<ScheduleAction>> lists;
      for (int stage = 0; stage < stages; ++stage) lists.push_back(schedule_1f1b(stage, stages, m));
      std::vector<size_t> next(lists.size());
      std::map<std::pair<int, int64_t>, int> done;  // (stage, microbatch): 1 forward, 2 backward
      for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < stages; ++stage) {
          auto& at = next[static_cast<size_t>(stage)];
          if (at == lists[static_cast<size_t>(stage)].size()) continue;
          const ScheduleAction action = lists[static_cast<size_t>(stage)][at];
          const bool forward = action.kind == ScheduleAction::kForward;
          const bool ready = forward ? stage == 0 || done[{stage - 1, action.microbatch}] >= 1
                                     : stage == stages - 1 || done[{stage + 1, action.microbatch}] == 2;
          if (!ready) continue;
          done[{stage, action.microbatch}] = forward ? 1 : 2;
          ++at;
          moved = true;
        }
      }
      for (size_t stage = 0; stage < lists.size(); ++stage) EXPECT_EQ(next[stage], lists[stage].size());
    }
  }
}

}  // namespace
}  // namespace ms::train
