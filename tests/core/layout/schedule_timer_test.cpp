// The timer against the checker, whose simulation it shortens.
#include "core/layout/schedule_timer.h"

#include <gtest/gtest.h>

#include <random>

namespace ms::layout {
namespace {

PipelineSchedule training(int stages, int chunks, const ScheduleSettings& settings) {
  const auto order = runs_in_a_v(settings.method) ? Placement::Order::kV : Placement::Order::kRoundRobin;
  PipelineSchedule schedule{Placement::even(stages, chunks, 0, order), 2 * stages, false, {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(schedule_training(settings, stage, stages, chunks, schedule.num_microbatches));
  return schedule;
}

TEST(ScheduleTimer, HasTheMakespanOfTheCheckerForAnyTimes) {
  struct Row {
    int stages, chunks;
    ScheduleSettings settings;
  };
  const Row rows[] = {{1, 1, {}},
                      {2, 1, {}},
                      {5, 1, {}},
                      {4, 2, {}},
                      {4, 2, {.recompute = RecomputeTime::kInAdvance}},
                      {4, 2, {ScheduleMethod::kNanoPipe}},
                      {4, 1, {ScheduleMethod::kZbH1}},
                      {4, 2, {ScheduleMethod::kZbV}},
                      {4, 2, {ScheduleMethod::kDualPipeVDetach}}};
  std::mt19937 random(20261126);
  for (const Row& row : rows) {
    const PipelineSchedule schedule = training(row.stages, row.chunks, row.settings);
    ScheduleTimer timer(schedule);
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::vector<ActionTimes> times(static_cast<size_t>(row.stages * row.chunks));
      const auto draw = [&] { return std::uniform_real_distribution<double>(0, 3)(random); };
      for (ActionTimes& t : times) t = {draw(), draw(), draw(), draw(), draw()};
      const ScheduleReport report = check_schedule(schedule, times);
      ASSERT_EQ(report.fault, "");
      ASSERT_EQ(timer.makespan(times), report.makespan)
          << row.stages << " stages, method " << static_cast<int>(row.settings.method);
    }
  }
}

TEST(CheckSchedule, TakesTimesOfEachPlace) {
  const PipelineSchedule schedule = training(2, 1, {});  // 4 micro-batches
  const std::vector<ActionTimes> times = {{.forward = 1, .backward = 2}, {.forward = 3, .backward = 5}};
  const ScheduleReport report = check_schedule(schedule, times);
  EXPECT_EQ(report.makespan, 1 + 4 * (3 + 5) + 2) << "the second stage never waits";
  EXPECT_EQ(report.idle, (std::vector<double>{1 + 4 * 8 + 2 - 4 * 3, 1 + 2}));
}

}  // namespace
}  // namespace ms::layout
