// Stages that sleep in each action, so that cores are no limit: how long they are idle is what the schedule checker
// computes from the times of the actions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "core/layout/schedule_check.h"
#include "core/trace/recorder.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"
#include "train/optim/optimizer.h"

namespace ms::train {
namespace {

using layout::ScheduleAction;
using std::chrono::milliseconds;

constexpr int kStages = 4;
constexpr int64_t kMicrobatches = 8;
constexpr int kUnitMs = 20;

int units(ScheduleAction::Kind kind) { return kind == ScheduleAction::kBackward ? 2 : 1; }

// Sleeps at the beginning of each action, and notes when it begins and ends.
class Sleeper : public ActionObserver {
 public:
  struct Noted {
    ScheduleAction action;
    int64_t begin_ns = 0, end_ns = 0;
  };

  void begins(const ScheduleAction& action) override {
    noted.push_back({action, core::trace::now_ns()});
    std::this_thread::sleep_for(milliseconds(kUnitMs * units(action.kind)));
  }
  void ends(const ScheduleAction&) override { noted.back().end_ns = core::trace::now_ns(); }

  std::vector<Noted> noted;
};

std::vector<Microbatch> microbatches() {
  std::vector<Microbatch> batch(kMicrobatches);
  for (Microbatch& microbatch : batch) {
    microbatch.batch = 1, microbatch.seq = 16;
    microbatch.tokens.assign(16, 3);
    microbatch.labels.assign(16, 5);
    microbatch.loss_mask.assign(16, 1.0F);
    microbatch.samples = {0};
  }
  return batch;
}

// Of each stage, in a step of the layout.
std::vector<Sleeper> run(const test::TinyLayout& layout) {
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), layout);
  config.model.num_layers = 8;
  config.training.global_batch_size = kMicrobatches;
  std::vector<Sleeper> sleepers(kStages);
  test::run_thread_ranks(kStages, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    GptStage stage(*rank.state, *rank.parameters);
    StepRunner runner(*rank.state, stage);
    rank.parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
    const std::vector<Microbatch> batch = microbatches();
    runner.train(batch, 1);  // the first step allocates
    runner.set_observer(&sleepers[static_cast<size_t>(endpoint.rank())]);
    runner.train(batch, 1);
  });
  return sleepers;
}

// The idle time of all stages, measured and as the checker has it for the mean times of the actions.
struct Idle {
  double measured_ms = 0, computed_ms = 0;
  double distance() const { return std::abs(measured_ms / computed_ms - 1); }
};

Idle idle_of(const std::vector<Sleeper>& sleepers, const layout::PipelineSchedule& schedule) {
  std::array<double, 5> sums{}, counts{};
  int64_t begin = sleepers[0].noted.front().begin_ns, end = begin;
  double busy = 0;
  for (const Sleeper& stage : sleepers) {
    begin = std::min(begin, stage.noted.front().begin_ns);
    for (const Sleeper::Noted& noted : stage.noted) {
      const double ms = static_cast<double>(noted.end_ns - noted.begin_ns) * 1e-6;
      sums[noted.action.kind] += ms;
      counts[noted.action.kind] += 1;
      busy += ms;
      end = std::max(end, noted.end_ns);
    }
  }
  const auto mean = [&](ScheduleAction::Kind kind) { return counts[kind] > 0 ? sums[kind] / counts[kind] : 0; };
  const layout::ScheduleReport report =
      layout::check_schedule(schedule, {.forward = mean(ScheduleAction::kForward),
                                        .backward = mean(ScheduleAction::kBackward),
                                        .backward_input = mean(ScheduleAction::kBackwardInput),
                                        .backward_weight = mean(ScheduleAction::kBackwardWeight)});
  EXPECT_EQ(report.fault, "");
  Idle idle{kStages * static_cast<double>(end - begin) * 1e-6 - busy};
  for (const double stage : report.idle) idle.computed_ms += stage;
  return idle;
}

class PipelineIdle : public testing::TestWithParam<test::TinyLayout> {};

// Only the order is exact; the time is that of the best of three steps, because other programs take cores, too.
TEST_P(PipelineIdle, IsWhatTheCheckerComputes) {
  const test::TinyLayout& row = GetParam();
  const test::TemporaryFolder folder;
  TrainerConfig config = test::tiny_config(folder.path(), row);
  layout::PipelineSchedule schedule{
      layout::Placement::even(kStages, row.chunks(), 8,
                              row.is_v() ? layout::Placement::Order::kV : layout::Placement::Order::kRoundRobin),
      kMicrobatches,
      false,
      {}};
  for (int stage = 0; stage < kStages; ++stage) {
    schedule.actions.push_back(
        layout::schedule_training(schedule_settings(config.parallel), stage, kStages, row.chunks(), kMicrobatches));
  }
  Idle best;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::vector<Sleeper> sleepers = run(row);
    for (size_t stage = 0; stage < sleepers.size(); ++stage) {
      std::vector<ScheduleAction> seen;
      for (const Sleeper::Noted& noted : sleepers[stage].noted) seen.push_back(noted.action);
      ASSERT_EQ(seen, schedule.actions[stage]);
    }
    const Idle idle = idle_of(sleepers, schedule);
    if (attempt == 0 || idle.distance() < best.distance()) best = idle;
    if (best.distance() < 0.1) break;
  }
  std::printf("%s: idle %.1f ms of all stages, computed %.1f ms\n", row.name().c_str(), best.measured_ms,
              best.computed_ms);
  EXPECT_LT(best.distance(), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineIdle,
                         testing::Values(test::TinyLayout{1, 4, 1}, test::TinyLayout{1, 4, 1, false, false, 2},
                                         test::TinyLayout{1, 4, 1, false, false, 2, "nanopipe"},
                                         test::TinyLayout{1, 4, 1, false, false, 1, "zb-h1"},
                                         test::TinyLayout{1, 4, 1, false, false, 1, "zb-v"},
                                         test::TinyLayout{1, 4, 1, false, false, 1, "dualpipev"},
                                         test::TinyLayout{1, 4, 1, false, false, 1, "dualpipev detached"}),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace ms::train
