// Runs forward and backward of one global batch on this pipeline stage: the executor of a schedule
// (core/layout/schedule.h), and of the sub-steps of two micro-batches where it has pairs (core/layout/interleave.h).
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/layout/schedule.h"
#include "core/layout/slot_policy.h"
#include "train/loop/expert_load.h"
#include "train/loop/step_timers.h"
#include "train/model/gpt_stage.h"
#include "train/model/routing_trace.h"
#include "train/parallel/p2p.h"

namespace ms::train {

struct BatchResult {
  double loss = 0;                 // mean, the same on all ranks (see StepRunner)
  double tokens = 0;               // unmasked tokens of the global batch
  std::vector<double> mtp_losses;  // of train(): of each layer of multi-token prediction, means over micro-batches
  double grad_scale = 1;           // what the optimizer must multiply gradients with: 1 / loss_scale in it
  ExpertLoads experts;             // of train(), the same on all ranks
};

// Notified of the actions of a batch, on the thread that runs them.
class ActionObserver {
 public:
  virtual ~ActionObserver() = default;
  // actions: one, or the two of a pair.
  virtual void begins(std::span<const layout::ScheduleAction> actions) = 0;  // their input is there
  virtual void ends(std::span<const layout::ScheduleAction> actions) = 0;    // their output is on its way
};

class StepRunner {
 public:
  // timers: where the time of forward and backward passes is added; may be null.
  StepRunner(RankState& state, GptStage& stage, StepTimers* timers = nullptr);

  // Forward and backward of this rank's micro-batches; gradients, times loss_scale, are added to main_grad. Loss: mean
  // over micro-batches of each one's mean over unmasked tokens, as Megatron's default; with --calculate-per-token-loss
  // over all unmasked tokens. With --async-log-allreduce the loss is there after await_loss() only. iteration:
  // completed ones, for --moe-routing-trace-path.
  BatchResult train(const std::vector<Microbatch>& microbatches, double loss_scale, int64_t iteration = 0);
  // Completes the result of the last train(). Gradients may be reduced before it.
  void await_loss(BatchResult& result);
  // Forward only.
  BatchResult evaluate(const std::vector<Microbatch>& microbatches);
  // Another schedule than the configuration's, which gives the same results: for tests and measurements.
  void set_schedule(const layout::ScheduleSettings& settings);
  void set_observer(ActionObserver* observer) { observer_ = observer; }  // not owned; nullptr: none

 private:
  // What a micro-batch has left at a chunk.
  struct Kept {
    StageActivations activations;
    core::Tensor input, gradient;  // from another chunk of this stage, until the chunk takes them
  };
  struct Batch;  // under way
  class ActionSpan;

  // Of train(), kept while the number of micro-batches stays.
  const std::vector<layout::ScheduleAction>& training_schedule(int64_t num_microbatches);
  BatchResult run(Batch batch);
  // Before `count` actions from the i-th on, and the input that they wait for: what left memory for the disk, and is
  // needed soon, begins to return.
  void prepare(const Batch& batch, size_t i, size_t count);
  void enter(const Batch& batch, const layout::ScheduleAction& action);  // what is recorded from now on is of it
  void run_action(Batch& batch, const layout::ScheduleAction& action, core::Tensor input);
  void run_pair(Batch& batch, std::span<const layout::ScheduleAction> pair, core::Tensor input, core::Tensor gradient);
  GptStage::Forward forward(Batch& batch, const layout::ScheduleAction& action, core::Tensor input);
  GptStage::Backward backward(Batch& batch, const layout::ScheduleAction& action, core::Tensor gradient);
  layout::FinalGradients leaves(const Batch& batch, const layout::ScheduleAction& action) const;
  // A sub-step; of the last one the result is handed on.
  void run_step(Batch& batch, const layout::ScheduleAction& action, GptStage::Forward& forward,
                const layout::ChunkStep& step);
  void run_step(Batch& batch, const layout::ScheduleAction& action, GptStage::Backward& backward,
                const layout::ChunkStep& step);

  Kept& kept(const layout::ScheduleAction& action, int chunk);
  // Whether the input of an action comes from another stage.
  bool receives(const layout::ScheduleAction& action) const;
  P2PCommunicator::Arrival post_input(const Batch& batch, const layout::ScheduleAction& action);
  // The input of the i-th action; undefined for what begins with tokens, the loss, or the operands of weights.
  core::Tensor take_input(Batch& batch, size_t i);
  // To the chunk that reads it, here or on another stage.
  void hand_on(const layout::ScheduleAction& action, core::Tensor output);

  RankState& state_;
  GptStage& stage_;
  StepTimers* timers_;
  ActionObserver* observer_ = nullptr;
  P2PCommunicator links_;
  std::vector<double> sums_;  // of the batch under way
  int64_t num_microbatches_ = 0;
  core::Work replica_sums_;    // of sums_, until await_loss()
  bool is_complete_ = true;    // the result of the last batch
  RoutingStatistics routing_;  // of this rank's layers, in the current step
  std::optional<RoutingTrace> routing_trace_;
  layout::ScheduleSettings settings_;
  std::vector<layout::ScheduleAction> schedule_;
  std::vector<std::vector<layout::PairStep>> pairs_;     // of a forward and a backward chunk; empty: there are none
  std::optional<layout::SlotPolicy> slots_;              // of schedule_
  std::vector<bool> weights_wait_;                       // of each micro-batch and chunk (layout::weights_wait)
  std::vector<layout::FinalGradients> final_gradients_;  // of each action of schedule_
  int64_t scheduled_ = 0;                                // micro-batches of schedule_
  std::vector<Kept> kept_;                               // of each micro-batch and chunk; without tensors between steps
};

}  // namespace ms::train
