// A stage of a tiny pipeline without a trainer, and what its schedule is for the checker: for tests that watch the
// actions of a step.
#pragma once

#include <vector>

#include "core/layout/schedule_check.h"
#include "tests/support/thread_comm.h"
#include "tests/support/tiny_run.h"
#include "tests/train/model/rank.h"
#include "train/loop/step.h"

namespace ms::train {

inline std::vector<Microbatch> equal_microbatches(int64_t count) {
  std::vector<Microbatch> batch(static_cast<size_t>(count));
  for (Microbatch& microbatch : batch) {
    microbatch = {.tokens = std::vector<int32_t>(16, 3), .labels = std::vector<int32_t>(16, 5)};
    microbatch.loss_mask.assign(16, 1.0F);
    microbatch.samples = {0};
    microbatch.batch = 1, microbatch.seq = 16;
  }
  return batch;
}

// One of the ranks of test::run_thread_ranks, with initial weights.
struct PipelineRank : Rank {
  PipelineRank(core::Endpoint& endpoint, const TrainerConfig& given, int64_t microbatches)
      : Rank(endpoint, given),
        stage(*state, *parameters),
        runner(*state, stage),
        batch(equal_microbatches(microbatches)) {
    parameters->initialize(1, [](const Parameter&, const core::TensorView&) {});
  }
  BatchResult step() { return runner.train(batch, 1); }

  GptStage stage;
  StepRunner runner;
  std::vector<Microbatch> batch;
};

// What all stages of a pipeline run in a step.
inline layout::PipelineSchedule schedule_of(const layout::ScheduleSettings& settings, int stages, int chunks,
                                            int64_t microbatches) {
  layout::PipelineSchedule schedule{
      layout::Placement::even(stages, chunks, int64_t{stages} * chunks, layout::chunk_order(settings.method)),
      microbatches,
      false,
      {}};
  for (int stage = 0; stage < stages; ++stage)
    schedule.actions.push_back(layout::schedule_training(settings, stage, stages, chunks, microbatches));
  return schedule;
}

}  // namespace ms::train
