#include "train/loop/step.h"

#include <array>
#include <optional>
#include <utility>

#include "core/trace/span.h"
#include "kernels/progress.h"

namespace ms::train {

using core::trace::Category;
using layout::ScheduleAction;

StepRunner::StepRunner(RankState& state, GptStage& stage, StepTimers* timers)
    : state_(state), stage_(stage), timers_(timers), links_(state) {}

const std::vector<ScheduleAction>& StepRunner::training_schedule(int64_t num_microbatches) {
  if (num_microbatches != scheduled_) {
    const int pp = state_.groups.at.pp, stages = state_.groups.grid.pp;
    schedule_ = layout::schedule_training(pp, stages, stage_.chunks(), num_microbatches);
    scheduled_ = num_microbatches;
  }
  return schedule_;
}

BatchResult StepRunner::train(const std::vector<Microbatch>& microbatches, double loss_scale) {
  return run(microbatches, training_schedule(static_cast<int64_t>(microbatches.size())), /*forward_only=*/false,
             loss_scale);
}

BatchResult StepRunner::evaluate(const std::vector<Microbatch>& microbatches) {
  const auto count = static_cast<int64_t>(microbatches.size());
  return run(microbatches, layout::schedule_forward_only(state_.groups.grid.pp, stage_.chunks(), count),
             /*forward_only=*/true, /*loss_scale=*/1);
}

P2PCommunicator::Arrival StepRunner::post_input(const ScheduleAction& action,
                                                const std::vector<Microbatch>& microbatches) {
  const Microbatch& microbatch = microbatches[static_cast<size_t>(action.microbatch)];
  const core::Dims shape = stage_.hidden_shape(microbatch.batch, microbatch.seq);
  if (action.kind == ScheduleAction::kForward) {
    return stage_.is_first_chunk(action.chunk) ? P2PCommunicator::Arrival() : links_.post_forward(shape);
  }
  return stage_.is_last_chunk(action.chunk) ? P2PCommunicator::Arrival() : links_.post_backward(shape);
}

BatchResult StepRunner::run(const std::vector<Microbatch>& microbatches, const std::vector<ScheduleAction>& schedule,
                            bool forward_only, double loss_scale) {
  const auto chunks = static_cast<size_t>(stage_.chunks());
  const bool posts_early = chunks > 1 && state_.config.parallel.overlap_p2p_communication;
  const bool per_token = state_.config.training.calculate_per_token_loss;
  const double total_microbatches = static_cast<double>(microbatches.size()) * state_.groups.dp_cp.size();
  const auto scale_of = [&](const Microbatch& microbatch) {
    double tokens = 0;
    for (float mask : microbatch.loss_mask) tokens += mask;
    return loss_scale * (per_token ? 1.0 : tokens > 0 ? 1.0 / (tokens * total_microbatches) : 0.0);
  };
  kept_.resize(microbatches.size() * chunks);
  std::array<double, 3> sums{};  // of losses, of tokens, of per-micro-batch means

  core::Endpoint& endpoint = state_.groups.world.endpoint();
  std::optional<kernels::ProgressScope> progress;
  if (endpoint.size() > 1)
    progress.emplace([](void* of) { static_cast<core::Endpoint*>(of)->progress_within_kernel(); }, &endpoint);
  StepTimers evaluation;  // is no part of a step
  StepTimers& timers = timers_ != nullptr && !forward_only ? *timers_ : evaluation;
  P2PCommunicator::Arrival next;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const ScheduleAction& action = schedule[i];
    const Microbatch& microbatch = microbatches[static_cast<size_t>(action.microbatch)];
    StageActivations& kept = kept_[static_cast<size_t>(action.microbatch) * chunks + static_cast<size_t>(action.chunk)];
    core::Tensor received = (posts_early && i > 0 ? std::exchange(next, {}) : post_input(action, microbatches)).take();
    if (posts_early && i + 1 < schedule.size()) next = post_input(schedule[i + 1], microbatches);
    if (action.kind == ScheduleAction::kForward) {
      core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "forward-microbatch");
      const TimedPart timed(timers, StepTimers::kForwardCompute);
      LossValue loss;
      core::Tensor output = stage_.forward(action.chunk, microbatch, std::move(received), kept, loss,
                                           forward_only ? std::nullopt : std::optional(scale_of(microbatch)));
      if (!stage_.is_last_chunk(action.chunk)) {
        links_.send_forward(std::move(output));
      } else {
        sums[0] += loss.sum;
        sums[1] += loss.tokens;
        sums[2] += loss.tokens > 0 ? loss.sum / loss.tokens : 0.0;
      }
    } else {
      core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "backward-microbatch");
      const TimedPart timed(timers, StepTimers::kBackwardCompute);
      core::Tensor dx = stage_.backward(action.chunk, microbatch, std::move(received), kept);
      if (!stage_.is_first_chunk(action.chunk)) links_.send_backward(std::move(dx));
    }
  }
  links_.finish();
  if (!forward_only) stage_.fold_tied_gradient();

  // Only the last stage has sums; the others add zeros, which changes no bit.
  if (state_.groups.dp_cp.size() > 1) state_.groups.dp_cp.allreduce(sums);
  if (state_.groups.pp.size() > 1) state_.groups.pp.allreduce(sums);
  BatchResult result;
  result.tokens = sums[1];
  result.loss = per_token ? (sums[1] > 0 ? sums[0] / sums[1] : 0.0) : sums[2] / total_microbatches;
  result.grad_scale = (per_token ? (sums[1] > 0 ? 1.0 / sums[1] : 0.0) : 1.0) / loss_scale;
  return result;
}

}  // namespace ms::train
