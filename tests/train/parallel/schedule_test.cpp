#include "train/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

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

// Simulates the stages' lists: each action runs as soon as its input exists and its stage is free. Returns when the
// last one ends; a chunk's forward takes 1, its backward 2, a message 0. Returns 0 for a deadlock.
int64_t makespan(const std::vector<std::vector<ScheduleAction>>& lists, int chunks) {
  const auto stages = static_cast<int>(lists.size());
  const int last = stages * chunks - 1;  // virtual stages: chunk * stages + stage
  std::vector<size_t> next(lists.size());
  std::vector<int64_t> free_at(lists.size());
  std::map<std::tuple<int, int, int64_t>, int64_t> done;  // (kind, virtual stage, micro-batch) -> time
  size_t left = 0;
  for (const auto& list : lists) left += list.size();
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto at = static_cast<size_t>(stage);
      if (next[at] == lists[at].size()) continue;
      const ScheduleAction action = lists[at][next[at]];
      const bool forward = action.kind == ScheduleAction::kForward;
      const int place = action.chunk * stages + stage;
      int64_t start = free_at[at];
      if (place != (forward ? 0 : last)) {  // from its neighbour; the last virtual stage starts from its own forward
        const auto input = done.find({action.kind, forward ? place - 1 : place + 1, action.microbatch});
        if (input == done.end()) continue;
        start = std::max(start, input->second);
      }
      free_at[at] = start + (forward ? 1 : 2);
      done[{action.kind, place, action.microbatch}] = free_at[at];
      ++next[at];
      --left;
      moved = true;
    }
  }
  return left > 0 ? 0 : *std::max_element(free_at.begin(), free_at.end());
}

TEST(Schedule1f1b, IsIdleForStagesMinusOneMicrobatches) {
  for (int stages : {1, 2, 3, 5}) {
    for (int64_t m : {1, 2, 6}) {
      std::vector<std::vector<ScheduleAction>> lists;
      for (int stage = 0; stage < stages; ++stage) lists.push_back(schedule_1f1b(stage, stages, m));
      EXPECT_EQ(makespan(lists, 1), 3 * (m + stages - 1)) << stages << " stages, " << m << " micro-batches";
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
        std::vector<std::vector<ScheduleAction>> lists;
        for (int stage = 0; stage < stages; ++stage) {
          lists.push_back(chunks == 1 ? schedule_1f1b(stage, stages, m)
                                      : schedule_interleaved(stage, stages, chunks, m));
        }
        EXPECT_EQ(makespan(lists, chunks), 3 * (m * chunks + stages - 1)) << stages << " x " << chunks << ", " << m;
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
}  // namespace ms::train
