#include "train/loop/step.h"

#include "core/trace/span.h"

namespace ms::train {

using core::trace::Category;

StepRunner::StepRunner(RankState& state, GptStage& stage) : state_(state), stage_(stage), links_(state) {}

BatchResult StepRunner::train(const std::vector<Microbatch>& microbatches) {
  const auto count = static_cast<int64_t>(microbatches.size());
  return run(microbatches, schedule_1f1b(state_.groups.at.pp, state_.groups.grid.pp, count), /*forward_only=*/false);
}

BatchResult StepRunner::evaluate(const std::vector<Microbatch>& microbatches) {
  return run(microbatches, schedule_forward_only(static_cast<int64_t>(microbatches.size())), /*forward_only=*/true);
}

BatchResult StepRunner::run(const std::vector<Microbatch>& microbatches, const std::vector<ScheduleAction>& schedule,
                            bool forward_only) {
  const bool first = state_.groups.is_first_stage();
  const bool last = state_.groups.is_last_stage();
  const bool per_token = state_.config.training.calculate_per_token_loss;
  const double total_microbatches = static_cast<double>(microbatches.size()) * state_.groups.dp_cp.size();
  std::vector<StageActivations> saved(microbatches.size());
  std::vector<double> sums = {0.0, 0.0, 0.0};  // of losses, of tokens, of per-micro-batch means

  for (const ScheduleAction& action : schedule) {
    const auto index = static_cast<size_t>(action.microbatch);
    const Microbatch& microbatch = microbatches[index];
    const core::Dims shape = stage_.hidden_shape(microbatch.batch, microbatch.seq);
    if (action.kind == ScheduleAction::kForward) {
      core::Tensor input = first ? core::Tensor() : links_.receive_forward(shape);
      core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "forward-microbatch");
      LossValue loss;
      core::Tensor output = stage_.forward(microbatch, std::move(input), saved[index], loss, forward_only);
      if (!last) {
        links_.send_forward(std::move(output));
      } else {
        sums[0] += loss.sum;
        sums[1] += loss.tokens;
        sums[2] += loss.tokens > 0 ? loss.sum / loss.tokens : 0.0;
      }
    } else {
      core::Tensor dy = last ? core::Tensor() : links_.receive_backward(shape);
      core::trace::Span span(state_.ops.recorder, Category::kUserAnnotation, "backward-microbatch");
      double tokens = 0;
      for (float mask : microbatch.loss_mask) tokens += mask;
      const double scale = per_token ? 1.0 : tokens > 0 ? 1.0 / (tokens * total_microbatches) : 0.0;
      core::Tensor dx = stage_.backward(microbatch, std::move(dy), saved[index], scale);
      if (!first) links_.send_backward(std::move(dx));
    }
  }
  links_.finish();
  if (!forward_only && last) stage_.loss_head()->fold_tied_gradient();

  // Only the last stage has sums; the others add zeros, which changes no bit.
  if (state_.groups.dp_cp.size() > 1) state_.groups.dp_cp.allreduce(sums);
  if (state_.groups.pp.size() > 1) state_.groups.pp.allreduce(sums);
  BatchResult result;
  result.tokens = sums[1];
  result.loss = per_token ? (sums[1] > 0 ? sums[0] / sums[1] : 0.0) : sums[2] / total_microbatches;
  result.grad_scale = per_token ? (sums[1] > 0 ? 1.0 / sums[1] : 0.0) : 1.0;
  return result;
}

}  // namespace ms::train
