// Micro-batches, chunks and ideal idle time against the lists that mstrain runs and the check that proves them
// (core/layout): each schedule is run on paper, and its actions and messages are given without what they work on.
#include "profile/analysis/pipeline_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/layout/schedule_check.h"

namespace ms::profile {
namespace {

using layout::Place;
using layout::Placement;
using layout::RecomputeTime;
using layout::ScheduleAction;
using layout::ScheduleMethod;

constexpr int64_t kUnit = 1000;  // ns in a unit of time of schedule_check.h
constexpr layout::ActionTimes kTimes{.forward = 3, .backward = 7, .backward_input = 4, .backward_weight = 2};

struct Case {
  const char* name;
  layout::ScheduleSettings settings;
  int chunks;
  bool in_a_v = false;
};
const Case kCases[] = {
    {"1f1b", {}, 1},
    {"interleaved", {}, 2},
    {"interleaved, three chunks", {}, 3},
    {"group of 5", {.microbatch_group_size = 5}, 2},
    {"recompute in advance", {.recompute = RecomputeTime::kInAdvance}, 2},
    {"recompute in bubble", {.recompute = RecomputeTime::kInBubble}, 3},
    {"nanopipe", {.method = ScheduleMethod::kNanoPipe}, 2},
    {"zb-h1", {.method = ScheduleMethod::kZbH1}, 1},
    {"zb-v", {.method = ScheduleMethod::kZbV}, 2, true},
    {"dualpipev", {.method = ScheduleMethod::kDualPipeV}, 2, true},
    {"dualpipev, detached", {.method = ScheduleMethod::kDualPipeVDetach}, 2, true},
};

layout::PipelineSchedule schedule_of(const Case& of, int stages, int64_t microbatches) {
  const auto order = of.in_a_v ? Placement::Order::kV : Placement::Order::kRoundRobin;
  layout::PipelineSchedule schedule{
      Placement::even(stages, of.chunks, int64_t{stages} * of.chunks, order), microbatches, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(of.settings, stage, stages, of.chunks, microbatches));
  return schedule;
}

// What a trace has of a run: the actions of each stage, with what they work on, and the messages. early: a receive is
// posted before the action that it overlaps. Rank of a stage: first_rank + stage.
std::vector<FlowStage> traced(const layout::PipelineSchedule& schedule, const layout::ScheduleReport& run, bool early,
                              int first_rank = 0) {
  std::vector<FlowStage> stages;
  for (int s = 0; s < schedule.placement.stages(); ++s) {
    FlowStage stage{.rank = first_rank + s, .stage = s};
    const auto other = [&](std::optional<Place> place) {
      return place && place->stage != s ? std::optional(first_rank + place->stage) : std::nullopt;
    };
    const auto& actions = schedule.actions[static_cast<size_t>(s)];
    int64_t before_start = 0, before_end = 0;
    for (size_t i = 0; i < actions.size(); ++i) {
      const double start = run.starts[static_cast<size_t>(s)][i];
      PipelineAction action{
          .letter = "FBIWR"[actions[i].kind], .microbatch = actions[i].microbatch, .chunk = actions[i].chunk};
      action.start = static_cast<int64_t>(start * kUnit) + 10;
      action.end = static_cast<int64_t>((start + kTimes.of(actions[i].kind)) * kUnit) - 10;
      if (const auto from = other(source_of(schedule.placement, s, actions[i])))
        stage.messages.push_back({false, *from, i == 0 ? 0 : early ? before_start - 1 : before_end, action.start - 1});
      if (const auto to = other(target_of(schedule.placement, s, actions[i])))
        stage.messages.push_back({true, *to, action.end - 2, action.end + kUnit});
      before_start = action.start, before_end = action.end;
      stage.actions.push_back(action);
    }
    std::ranges::stable_sort(stage.messages, {}, &StageMessage::start);
    stages.push_back(std::move(stage));
  }
  return stages;
}

void forget(std::vector<FlowStage>& stages) {
  for (FlowStage& stage : stages) {
    for (PipelineAction& action : stage.actions) action.microbatch = action.chunk = -1;
  }
}

void expect_same(const std::vector<FlowStage>& seen, const std::vector<FlowStage>& expected) {
  for (size_t s = 0; s < seen.size(); ++s) {
    for (size_t a = 0; a < seen[s].actions.size(); ++a) {
      const PipelineAction &is = seen[s].actions[a], &should_be = expected[s].actions[a];
      ASSERT_EQ(std::pair(is.microbatch, is.chunk), std::pair(should_be.microbatch, should_be.chunk))
          << "stage " << s << ", action " << a << " " << is.letter;
    }
  }
}

TEST(FollowMicrobatches, FindsWhatEachActionOfEachScheduleWorksOn) {
  for (const Case& of : kCases) {
    for (const int stages : {2, 3, 4, 5}) {
      for (const int64_t microbatches : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 20}) {
        if (microbatches < least_microbatches(of.settings.method, stages)) continue;
        if (of.chunks > 1 && !of.in_a_v && microbatches % std::max<int64_t>(stages, of.settings.microbatch_group_size))
          continue;
        if (of.settings.microbatch_group_size != 0 && of.settings.microbatch_group_size < stages) continue;
        const auto schedule = schedule_of(of, stages, microbatches);
        const auto run = check_schedule(schedule, kTimes);
        ASSERT_EQ(run.fault, "") << of.name;
        const double idle = std::accumulate(run.idle.begin(), run.idle.end(), 0.0) / stages / run.makespan;
        for (const bool early : {false, true}) {
          SCOPED_TRACE(testing::Message() << of.name << ", " << stages << " stages, " << microbatches
                                          << " micro-batches, early " << early);
          const std::vector<FlowStage> expected = traced(schedule, run, early);
          std::vector<FlowStage> seen = expected;
          forget(seen);
          const auto flow = follow_microbatches(seen, stages);
          ASSERT_TRUE(flow);
          EXPECT_EQ(flow->microbatches, microbatches);
          EXPECT_EQ(flow->chunks, of.chunks);
          EXPECT_EQ(flow->in_a_v, of.in_a_v);
          // Each action is 20 ns shorter than on paper.
          EXPECT_NEAR(flow->ideal_ratio, idle, 0.01);
          expect_same(seen, expected);
        }
      }
    }
  }
}

// What the actions say is taken: micro-batches, chunks and ideal follow, with actions in parts, and several pipelines.
TEST(FollowMicrobatches, TakesWhatTheActionsSay) {
  for (const Case& of : kCases) {
    for (const int stages : {2, 3}) {
      const int64_t microbatches = of.settings.microbatch_group_size > 0 ? 10 : 6;
      SCOPED_TRACE(testing::Message() << of.name << ", " << stages << " stages");
      const auto schedule = schedule_of(of, stages, microbatches);
      const auto run = check_schedule(schedule, kTimes);
      std::vector<FlowStage> named = traced(schedule, run, true);
      for (FlowStage& stage : traced(schedule, run, true, stages)) named.push_back(std::move(stage));
      for (FlowStage& stage : named) {  // in two parts, between which there is something else
        std::vector<PipelineAction> parts;
        for (const PipelineAction& whole : stage.actions) {
          PipelineAction first = whole, second = whole;
          first.end = whole.start + (whole.end - whole.start) / 3;
          second.start = first.end;
          parts.push_back(first);
          parts.push_back(second);
        }
        stage.actions = std::move(parts);
      }
      const std::vector<FlowStage> before = named;
      const auto flow = follow_microbatches(named, stages);
      ASSERT_TRUE(flow);
      EXPECT_EQ(flow->microbatches, microbatches);
      EXPECT_EQ(flow->chunks, of.chunks);
      EXPECT_EQ(flow->in_a_v, of.in_a_v);
      const double idle = std::accumulate(run.idle.begin(), run.idle.end(), 0.0) / stages / run.makespan;
      EXPECT_NEAR(flow->ideal_ratio, idle, 0.01);
      expect_same(named, before);
      // Without some of the messages, or actions, it is not whole.
      std::vector<FlowStage> lost = before;
      std::erase_if(lost[0].messages, [](const StageMessage& m) { return m.send; });
      EXPECT_FALSE(follow_microbatches(lost, stages));
      lost = before;
      lost[1].actions.resize(2);
      EXPECT_FALSE(follow_microbatches(lost, stages));
      lost = before;
      lost[0].actions[0].microbatch = INT64_MAX;
      EXPECT_FALSE(follow_microbatches(lost, stages));
    }
  }
}

TEST(FollowMicrobatches, IdealOf1F1BIsItsFormula) {
  for (const int chunks : {1, 2}) {
    const auto schedule = schedule_of({"", {}, chunks}, 4, 8);
    std::vector<FlowStage> stages = traced(schedule, check_schedule(schedule, kTimes), false);
    EXPECT_NEAR(follow_microbatches(stages, 4)->ideal_ratio, 3.0 / (8 * chunks + 3), 1e-12);
  }
}

TEST(FollowMicrobatches, SeveralPipelinesAreFollowedAtOnce) {
  const auto schedule = schedule_of(kCases[8], 3, 6);
  const auto run = check_schedule(schedule, kTimes);
  std::vector<FlowStage> expected = traced(schedule, run, true);
  for (FlowStage& stage : traced(schedule, run, true, 3)) expected.push_back(std::move(stage));
  std::vector<FlowStage> seen = expected;
  forget(seen);
  ASSERT_TRUE(follow_microbatches(seen, 3));
  expect_same(seen, expected);
}

TEST(FollowMicrobatches, WhatDoesNotFitIsNotGuessed) {
  const auto schedule = schedule_of({"", {}, 2}, 3, 6);
  const std::vector<FlowStage> whole = traced(schedule, check_schedule(schedule, kTimes), false);
  const auto refuses = [&](const char* what, auto&& change) {
    std::vector<FlowStage> stages = whole;
    forget(stages);
    change(stages);
    EXPECT_FALSE(follow_microbatches(stages, 3)) << what;
    for (const FlowStage& stage : stages) {
      for (const PipelineAction& action : stage.actions) EXPECT_EQ(action.microbatch, -1) << what;
    }
  };
  refuses("no ranks", [](auto& stages) { stages.clear(); });
  refuses("a stage without actions", [](auto& stages) { stages[1].actions.clear(); });
  refuses("a missing stage", [](auto& stages) { stages.pop_back(); });
  refuses("a lost action", [](auto& stages) { stages[1].actions.pop_back(); });
  refuses("a lost send", [](auto& stages) { std::erase_if(stages[0].messages, [](auto& m) { return m.send; }); });
  refuses("a lost receive", [](auto& stages) { stages[1].messages.erase(stages[1].messages.begin()); });
  refuses("no messages", [](auto& stages) {
    for (FlowStage& stage : stages) stage.messages.clear();
  });
  refuses("a send outside the actions", [](auto& stages) {
    stages[2].messages.push_back({true, 0, 1 << 30, 1 << 30});
  });
  refuses("stages the other way round", [](auto& stages) { std::swap(stages[0].stage, stages[2].stage); });
}

}  // namespace
}  // namespace ms::profile
