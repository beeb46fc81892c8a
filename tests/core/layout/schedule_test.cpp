#include "core/layout/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
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

constexpr ScheduleMethod kMethods[] = {ScheduleMethod::k1F1B,      ScheduleMethod::kNanoPipe,
                                       ScheduleMethod::kZbH1,      ScheduleMethod::kZbV,
                                       ScheduleMethod::kDualPipeV, ScheduleMethod::kDualPipeVDetach};

Placement placement_for(ScheduleMethod method, int stages, int chunks) {
  return Placement::even(stages, chunks, int64_t{stages} * chunks,
                         runs_in_a_v(method) ? Placement::Order::kV : Placement::Order::kRoundRobin);
}

ScheduleReport report_of(const ScheduleSettings& settings, int stages, int chunks, int64_t microbatches,
                         const ActionTimes& times = {}) {
  PipelineSchedule schedule{placement_for(settings.method, stages, chunks), microbatches, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(settings, stage, stages, chunks, microbatches));
  ScheduleReport report = check_schedule(schedule, times);
  EXPECT_EQ(report.fault, "") << static_cast<int>(settings.method) << ": " << stages << " x " << chunks << ", "
                              << microbatches;
  return report;
}
ScheduleReport report_of(ScheduleMethod method, int stages, int chunks, int64_t microbatches,
                         const ActionTimes& times = {}) {
  return report_of(ScheduleSettings{method}, stages, chunks, microbatches, times);
}

double makespan(int stages, int chunks, int64_t microbatches) {
  return report_of(ScheduleMethod::k1F1B, stages, chunks, microbatches).makespan;
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
  EXPECT_EQ(schedule_interleaved(0, 2, 2, 4, 2), first);
  EXPECT_EQ(schedule_interleaved(1, 2, 2, 4, 2), second);
}

TEST(ScheduleInterleaved, WarmsUpByMegatronsFormulaAndHoldsOneMore) {
  for (int stages : {2, 4}) {
    for (int chunks : {2, 3}) {
      for (int64_t m : {1 * stages, 2 * stages, 5 * stages}) {
        for (int stage = 0; stage < stages; ++stage) {
          const int64_t warmup = std::min<int64_t>(2 * (stages - stage - 1) + (chunks - 1) * stages, m * chunks);
          const auto actions = schedule_interleaved(stage, stages, chunks, m, stages);
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
    for (const ScheduleAction& action : schedule_interleaved(stage, 4, 3, 8, 4)) {
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

TEST(Schedules, AreLegalForAnySize) {
  for (const ScheduleMethod method : kMethods) {
    const bool interleaved = method <= ScheduleMethod::kNanoPipe;
    for (int stages = 2; stages <= 16; ++stages) {
      for (int chunks = 1; chunks <= (interleaved ? 4 : 1); ++chunks) {
        for (int64_t m = stages; m <= 8 * stages; m += chunks > 1 ? stages : 1) {
          if (m < least_microbatches(method, stages)) continue;
          report_of(method, stages, runs_in_a_v(method) ? 2 : chunks, m);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Schedules, OfFewMicrobatchesAreLegal) {
  for (const ScheduleMethod method : {ScheduleMethod::kZbH1, ScheduleMethod::kZbV}) {
    for (int stages = 2; stages <= 8; ++stages)
      for (int64_t m = 1; m < stages; ++m) report_of(method, stages, runs_in_a_v(method) ? 2 : 1, m);
  }
}

TEST(ScheduleInterleaved, GroupsOfMicrobatchesMayBeLarger) {
  // From Megatron's rules for 2 stages, 2 chunks, 5 micro-batches in groups of 3: 0 1 2, then 3 4, each through both
  // chunks; 2 (p - 1 - i) + (v - 1) 3 warm up.
  std::vector<std::pair<int64_t, int>> forwards;
  for (const ScheduleAction& action : schedule_interleaved(1, 2, 2, 5, 3)) {
    if (action.kind == ScheduleAction::kForward) forwards.emplace_back(action.microbatch, action.chunk);
  }
  const std::vector<std::pair<int64_t, int>> expected = {{0, 0}, {1, 0}, {2, 0}, {0, 1}, {1, 1},
                                                         {2, 1}, {3, 0}, {4, 0}, {3, 1}, {4, 1}};
  EXPECT_EQ(forwards, expected);
  EXPECT_EQ(peak_in_flight(schedule_interleaved(1, 2, 2, 5, 3)), 3 + 1);
  for (const ScheduleMethod method : {ScheduleMethod::k1F1B, ScheduleMethod::kNanoPipe}) {
    for (int stages = 2; stages <= 8; ++stages) {
      for (int chunks : {2, 3}) {
        for (int64_t group = stages; group <= 2 * stages + 1; ++group) {
          for (int64_t last = stages; last <= group; ++last)
            report_of(ScheduleSettings{method, group}, stages, chunks, 2 * group + last);
        }
      }
    }
  }
}

TEST(ScheduleNanoPipe, SavesTheQueuedWeightGradients) {
  for (int stages : {3, 4, 8}) {
    for (int chunks : {2, 3}) {
      for (int64_t m : {2 * stages, 4 * stages}) {
        const ScheduleReport nano = report_of(ScheduleMethod::kNanoPipe, stages, chunks, m);
        const double saved = makespan(stages, chunks, m) - nano.makespan, queued = 2 * (stages - 1);
        EXPECT_GE(saved, 0.8 * queued) << stages << " x " << chunks << ", " << m;
        EXPECT_LE(saved, queued);
        for (int stage = 0; stage < stages; ++stage) {
          const int64_t interleaved = peak_in_flight(schedule_interleaved(stage, stages, chunks, m, stages));
          EXPECT_EQ(nano.in_flight[static_cast<size_t>(stage)], interleaved + 2 * stage);
        }
      }
    }
  }
}

TEST(RecomputeInBubble, KeepsAtMostStagesTimesChunks) {
  constexpr ScheduleSettings kSettings = {.recompute = RecomputeTime::kInBubble};
  for (int stages : {2, 3, 4, 8}) {
    for (int chunks : {2, 3}) {
      for (int64_t m : {1 * stages, 2 * stages, 5 * stages}) {
        report_of(kSettings, stages, chunks, m);
        for (int stage = 0; stage < stages; ++stage) {
          const auto plain = schedule_interleaved(stage, stages, chunks, m, stages);
          const auto actions = schedule_training(kSettings, stage, stages, chunks, m);
          EXPECT_EQ(peak_kept(actions), std::min<int64_t>(peak_in_flight(plain), stages * chunks));
          const auto again = std::ranges::count(actions, ScheduleAction::kRecompute, &ScheduleAction::kind);
          EXPECT_EQ(again == 0, peak_in_flight(plain) <= stages * chunks);
          if (m == 2 * stages) {
            EXPECT_EQ(again, std::max(0, stages - 2 * stage - 1)) << "MindSpeed's number";
          }
          const auto dropped = dropped_chunks(kSettings, actions, chunks, m);
          EXPECT_EQ(std::ranges::count(dropped, true), again);
        }
      }
    }
  }
}

// Larger groups and nano-pipe keep more at once than stages x chunks in any order: what is needed last is dropped.
TEST(RecomputeInBubble, KeepsNoMoreInOtherSchedules) {
  for (const ScheduleMethod method : {ScheduleMethod::k1F1B, ScheduleMethod::kNanoPipe}) {
    for (int stages : {2, 4}) {
      for (int64_t group : {int64_t{stages}, int64_t{stages} + 1, int64_t{2} * stages}) {
        const ScheduleSettings kept = {.method = method, .microbatch_group_size = group};
        ScheduleSettings dropped = kept;
        dropped.recompute = RecomputeTime::kInBubble;
        const int64_t m = 2 * group;
        const double makespan = report_of(dropped, stages, 2, m).makespan;
        EXPECT_LE(makespan, 1.2 * report_of(kept, stages, 2, m).makespan) << stages << ", " << group;
        for (int stage = 0; stage < stages; ++stage)
          EXPECT_LE(peak_kept(schedule_training(dropped, stage, stages, 2, m)), 2 * stages);
      }
    }
  }
}

TEST(RecomputeInAdvance, HasNoActionForChunksThatDropNothing) {
  const ScheduleSettings settings = {.recompute = RecomputeTime::kInAdvance, .recomputed_chunks = 1};
  for (const ScheduleAction& action : schedule_training(settings, 0, 2, 3, 4))
    EXPECT_TRUE(action.kind != ScheduleAction::kRecompute || action.chunk == 0);
}

TEST(RecomputeInAdvance, IsBeforeEachBackwardButTheLastPlaces) {
  constexpr ScheduleSettings kSettings = {.recompute = RecomputeTime::kInAdvance};
  const ActionTimes with_recompute = {.forward = 1, .backward = 3};
  for (int stages : {2, 4}) {
    for (int chunks : {2, 3}) {
      const int64_t m = 2 * stages;
      const ScheduleReport report = report_of(kSettings, stages, chunks, m);
      EXPECT_LT(report.makespan, report_of({}, stages, chunks, m, with_recompute).makespan)
          << "it does not wait for the gradient";
      for (int stage = 0; stage < stages; ++stage) {
        const auto actions = schedule_training(kSettings, stage, stages, chunks, m);
        int64_t again = 0;
        for (size_t i = 0; i < actions.size(); ++i) {
          if (actions[i].kind != ScheduleAction::kRecompute) continue;
          ++again;
          EXPECT_EQ(actions[i + 1].kind, ScheduleAction::kBackward);
          EXPECT_EQ(actions[i + 1].microbatch, actions[i].microbatch);
          EXPECT_EQ(actions[i + 1].chunk, actions[i].chunk);
        }
        EXPECT_EQ(again, m * (stage == stages - 1 ? chunks - 1 : chunks));
      }
    }
  }
}

TEST(ScheduleZbH1, IsIdleForAThirdOf1F1BAndHoldsAsMuchOnEveryStage) {
  for (int stages : {2, 3, 4, 8}) {
    for (int64_t m : {1 * stages, 4 * stages + 1}) {
      const ScheduleReport report = report_of(ScheduleMethod::kZbH1, stages, 1, m);
      for (int stage = 0; stage < stages; ++stage) {
        // (p - 1) (F + B - W) = p - 1, where 1F1B has 3 (p - 1).
        EXPECT_EQ(report.idle[static_cast<size_t>(stage)], stages - 1) << stages << ", " << m;
        EXPECT_EQ(report.in_flight[static_cast<size_t>(stage)], stages);
      }
      // With times that differ: F + B - W = 3 + 4 - 2.
      const ActionTimes times = {.forward = 3, .backward = 6, .backward_input = 4, .backward_weight = 2};
      EXPECT_EQ(report_of(ScheduleMethod::kZbH1, stages, 1, m, times).idle[0], 5.0 * (stages - 1));
    }
  }
}

TEST(ScheduleZbV, IsIdleOnlyBeforeItsFirstActionAndAfterItsLast) {
  for (int stages : {2, 3, 4, 8}) {
    for (int64_t m : {2 * stages, 5 * stages + 1}) {
      const ScheduleReport report = report_of(ScheduleMethod::kZbV, stages, 2, m);
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = static_cast<size_t>(stage);
        const double busy = static_cast<double>(6 * m);
        EXPECT_EQ(report.starts[at].back() + 1 - report.starts[at].front(), busy) << stages << ", " << m;
        EXPECT_EQ(report.starts[at].front(), stage);
        EXPECT_EQ(report.in_flight[at], 2 * stages) << "chunks, each half as large as a stage's of 1F1B";
      }
    }
  }
}

TEST(ScheduleDualPipeV, DetachedWeightGradientsFillIdleTime) {
  for (int stages : {2, 3, 4, 8}) {
    for (int64_t m : {2 * stages, 5 * stages + 1}) {
      const ScheduleReport whole = report_of(ScheduleMethod::kDualPipeV, stages, 2, m);
      const ScheduleReport detached = report_of(ScheduleMethod::kDualPipeVDetach, stages, 2, m);
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = static_cast<size_t>(stage);
        EXPECT_EQ(whole.idle[at], 4 * (stages - 1) - 1) << stages << ", " << m;
        EXPECT_EQ(detached.idle[at], stages - 1) << stages << ", " << m;
        EXPECT_LE(detached.in_flight[at], 2 * stages + 1);
      }
    }
  }
}

TEST(ScheduleDualPipeV, IsIdleByDeepSeeksFormulaIfPairsRunAsOne) {
  // (p - 1) (F&B + B - 3 W), with F&B = F + B.
  for (int stages : {2, 3, 4, 8}) {
    for (int64_t m : {2 * stages, 4 * stages + 1}) {
      for (const double weight : {1.0, 2.0}) {
        const ActionTimes times = {.forward = weight,
                                   .backward = 2 * weight,
                                   .backward_input = weight,
                                   .backward_weight = weight,
                                   .forward_and_backward = 3 * weight};
        const ScheduleReport report = report_of(ScheduleMethod::kDualPipeVDetach, stages, 2, m, times);
        for (const double idle : report.idle) EXPECT_EQ(idle, (stages - 1) * (3 + 2 - 3) * weight) << stages;
        const ScheduleReport whole = report_of(ScheduleMethod::kDualPipeV, stages, 2, m, times);
        for (const double idle : whole.idle) EXPECT_EQ(idle, (stages - 1) * 5 * weight) << stages;
      }
    }
  }
}

TEST(ScheduleDualPipeV, HasAForwardBesideEachBackwardOfTheOtherChunk) {
  constexpr int kStages = 4;
  constexpr int64_t kMicrobatches = 20;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto actions = schedule_dualpipe_v(stage, kStages, kMicrobatches, true);
    int64_t pairs = 0;
    for (size_t i = 0; i + 1 < actions.size(); ++i) {
      pairs += actions[i].kind == ScheduleAction::kForward && actions[i + 1].kind == ScheduleAction::kBackward &&
               actions[i].chunk != actions[i + 1].chunk;
    }
    EXPECT_GE(pairs, 2 * (kMicrobatches - 2 * kStages + stage + 1));
  }
}

// Interleaved, they run to their end with any numbers of stages and micro-batches; with delayed weights each of the
// pairs' backwards is in two parts, and no gradient waits longer than for its pair.
TEST(ScheduleDualPipeV, PairsAreLegalForAnyNumbers) {
  constexpr ActionTimes kPairs = {.forward_and_backward = 3, .forward_and_backward_input = 2};
  for (const ScheduleMethod method : {ScheduleMethod::kDualPipeV, ScheduleMethod::kDualPipeVDetach}) {
    for (int stages = 2; stages <= 16; ++stages) {
      for (const int64_t m : {2 * stages, 2 * stages + 1, 8 * stages}) {
        ScheduleSettings settings = {.method = method, .pairs = true};
        const ScheduleReport whole = report_of(settings, stages, 2, m, kPairs);
        settings.delays_weights_of_pairs = true;
        const ScheduleReport delayed = report_of(settings, stages, 2, m, kPairs);
        EXPECT_EQ(delayed.in_flight, whole.in_flight) << stages << ", " << m;
        EXPECT_LE(delayed.makespan, whole.makespan) << stages << ", " << m;
      }
    }
  }
  ScheduleSettings settings = {.method = ScheduleMethod::kDualPipeV, .pairs = true, .delays_weights_of_pairs = true};
  const auto actions = schedule_training(settings, 1, 4, 2, 20);
  for (size_t i = 0; i + 2 < actions.size(); ++i) {
    if (!begins_pair(Placement::Order::kV, actions, i)) continue;
    ASSERT_EQ(actions[i + 1].kind, ScheduleAction::kBackwardInput);
    EXPECT_EQ(actions[i + 2],
              (ScheduleAction{ScheduleAction::kBackwardWeight, actions[i + 1].microbatch, actions[i + 1].chunk}));
  }
}

// With one more forward to warm up, each backward but the last ones has a forward in front of it that needs nothing of
// it, and a pair waits for nothing that comes behind it.
TEST(ScheduleInterleaved, PairsAreLegalForAnyNumbers) {
  constexpr ActionTimes kPairs = {.forward_and_backward = 3, .forward_and_backward_input = 2};
  for (int stages = 2; stages <= 16; ++stages) {
    for (const int chunks : {2, 3, 4}) {
      for (const auto& [group, m] : {std::pair(stages, stages), std::pair(stages, 2 * stages),
                                     std::pair(stages, 8 * stages), std::pair(2 * stages, 5 * stages + 1)}) {
        SCOPED_TRACE(core::cat(stages, " x ", chunks, ", ", m, " in groups of ", group));
        ScheduleSettings settings = {.microbatch_group_size = group, .pairs = true};
        const ScheduleReport whole = report_of(settings, stages, chunks, m, kPairs);
        for (int stage = 0; stage < stages; ++stage) {
          const auto actions = schedule_training(settings, stage, stages, chunks, m);
          int64_t pairs = 0;
          for (size_t i = 0; i < actions.size(); ++i)
            pairs += begins_pair(Placement::Order::kRoundRobin, actions, i) ? 1 : 0;
          const int64_t left = m * chunks - (2 * (stages - 1 - stage) + (chunks - 1) * group + 1);
          EXPECT_EQ(pairs, left > 1 ? left : 0) << "stage " << stage;
        }
        settings.delays_weights_of_pairs = true;
        EXPECT_EQ(report_of(settings, stages, chunks, m, kPairs).in_flight, whole.in_flight);
      }
    }
  }
}

TEST(ScheduleInterleaved, OneStageHasPairsToo) {
  using enum ScheduleAction::Kind;
  EXPECT_EQ(schedule_training({.pairs = true}, 0, 1, 1, 3),
            (std::vector<ScheduleAction>{
                {kForward, 0}, {kForward, 1}, {kBackward, 0}, {kForward, 2}, {kBackward, 1}, {kBackward, 2}}));
  EXPECT_EQ(schedule_training({.pairs = true}, 0, 1, 1, 1),
            (std::vector<ScheduleAction>{{kForward, 0}, {kBackward, 0}}));
}

TEST(ScheduleForwardOnly, IsLegalForAnyNumberOfMicrobatchesAndInAV) {
  for (const ScheduleMethod method : {ScheduleMethod::k1F1B, ScheduleMethod::kZbV}) {
    for (int stages : {2, 3, 5}) {
      for (int chunks : {1, 2, 3}) {
        if (runs_in_a_v(method) && chunks != 2) continue;
        for (int64_t m = 1; m <= 3 * stages; ++m) {
          PipelineSchedule schedule{placement_for(method, stages, chunks), m, true, {}};
          for (int stage = 0; stage < stages; ++stage)
            schedule.actions.push_back(schedule_forward_only(stages, chunks, m));
          EXPECT_EQ(check_schedule(schedule).fault, "") << stages << " x " << chunks << ", " << m;
        }
      }
    }
  }
}

TEST(ScheduleForwardOnly, IsTheForwardsOfTraining) {
  for (int chunks : {1, 3}) {
    std::vector<ScheduleAction> forwards;
    for (const ScheduleAction& action : schedule_interleaved(1, 2, chunks, 4, 2)) {
      if (action.kind == ScheduleAction::kForward) forwards.push_back(action);
    }
    EXPECT_EQ(schedule_forward_only(2, chunks, 4), forwards);
  }
}

}  // namespace
}  // namespace ms::layout
