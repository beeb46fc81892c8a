// Runs forward and backward of one global batch on this pipeline stage: the executor of a schedule
// (core/layout/schedule.h).
#pragma once

#include <vector>

#include "core/layout/schedule.h"
#include "train/loop/step_timers.h"
#include "train/model/gpt_stage.h"
#include "train/parallel/p2p.h"

namespace ms::train {

struct BatchResult {
  double loss = 0;        // mean, the same on all ranks (see StepRunner)
  double tokens = 0;      // unmasked tokens of the global batch
  double grad_scale = 1;  // what the optimizer must multiply gradients with: 1 / loss_scale in it
};

class StepRunner {
 public:
  // timers: where the time of forward and backward passes is added; may be null.
  StepRunner(RankState& state, GptStage& stage, StepTimers* timers = nullptr);

  // Forward and backward of this rank's micro-batches; gradients, times loss_scale, are added to main_grad. Loss: mean
  // over micro-batches of each one's mean over unmasked tokens, as Megatron's default; with --calculate-per-token-loss
  // over all unmasked tokens.
  BatchResult train(const std::vector<Microbatch>& microbatches, double loss_scale);
  // Forward only.
  BatchResult evaluate(const std::vector<Microbatch>& microbatches);

 private:
  // Of train(), kept while the number of micro-batches stays.
  const std::vector<layout::ScheduleAction>& training_schedule(int64_t num_microbatches);
  BatchResult run(const std::vector<Microbatch>& microbatches, const std::vector<layout::ScheduleAction>& schedule,
                  bool forward_only, double loss_scale);
  // Posts the receive of what an action needs; empty for what begins with tokens or the loss.
  P2PCommunicator::Arrival post_input(const layout::ScheduleAction& action,
                                      const std::vector<Microbatch>& microbatches);

  RankState& state_;
  GptStage& stage_;
  StepTimers* timers_;
  P2PCommunicator links_;
  std::vector<layout::ScheduleAction> schedule_;
  int64_t scheduled_ = 0;               // micro-batches of schedule_
  std::vector<StageActivations> kept_;  // of each micro-batch and chunk; without tensors between steps
};

}  // namespace ms::train
