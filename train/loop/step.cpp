#include "train/loop/step.h"

#include <optional>
#include <utility>

#include "core/comm/flight_recorder.h"
#include "core/error.h"
#include "core/layout/swap_plan.h"
#include "core/trace/span.h"
#include "train/loop/run_inputs.h"
#include "train/model/tensor_recorder.h"
#include "train/ops/progress_in_kernels.h"

namespace ms::train {

using core::trace::Category;
using core::trace::Span;
using layout::ScheduleAction;

namespace {

constexpr size_t kLossSums = 3;  // StepRunner::Batch::sums, without multi-token prediction

}  // namespace

struct StepRunner::Batch {
  const std::vector<Microbatch>& microbatches;
  const std::vector<ScheduleAction>& schedule;
  bool forward_only;
  double loss_scale;
  StepTimers* timers = nullptr;
  // Of losses, of tokens, of per-micro-batch means, of those of each layer of multi-token prediction.
  std::vector<double>& sums;
  P2PCommunicator::Arrival next = {};  // the input of the next action, where receives are posted early

  const Microbatch& microbatch(const ScheduleAction& action) const {
    return microbatches[static_cast<size_t>(action.microbatch)];
  }
  std::span<const ScheduleAction> actions(size_t first, size_t count) const {
    return std::span(schedule).subspan(first, count);
  }
};

// The annotation of an action, or of a part of one that is paired, and the timer of such work.
class StepRunner::ActionSpan {
 public:
  ActionSpan(core::trace::Recorder* recorder, StepTimers* timers, const ScheduleAction& action)
      : timed_(timers != nullptr ? *timers : evaluation_,
               action.kind == ScheduleAction::kForward ? StepTimers::kForwardCompute : StepTimers::kBackwardCompute),
        span_(recorder, Category::kUserAnnotation, name(action.kind), action.microbatch, action.chunk) {}

 private:
  static const char* name(ScheduleAction::Kind kind) {
    constexpr const char* kNames[] = {"forward-microbatch", "backward-microbatch", "backward-input-microbatch",
                                      "backward-weight-microbatch", "recompute-microbatch"};
    return kNames[kind];
  }

  StepTimers evaluation_;  // is no part of a step
  TimedPart timed_;
  Span span_;
};

StepRunner::StepRunner(RankState& state, GptStage& stage, StepTimers* timers)
    : state_(state), stage_(stage), timers_(timers), links_(state), settings_(state.config.schedule_settings()) {
  state.routing = &routing_;
  const LoggerConfig& logger = state.config.logger;
  if (logger.moe_routing_trace_path.empty() || !trains(state.config)) return;  // it would replace a training run's
  routing_trace_.emplace(logger.moe_routing_trace_path, state.groups.world.rank(),
                         logger.moe_routing_trace_max_training_iters);
  routing_.set_trace(&*routing_trace_);
}

void StepRunner::set_schedule(const layout::ScheduleSettings& settings) {
  settings_ = settings;
  scheduled_ = 0;
}

const std::vector<ScheduleAction>& StepRunner::training_schedule(int64_t num_microbatches) {
  if (num_microbatches != scheduled_) {
    schedule_ = layout::schedule_training(settings_, state_.groups.at.pp, state_.groups.grid.pp, stage_.chunks(),
                                          num_microbatches);
    layout::TrainingStep step = state_.config.training_step(state_.groups.grid.world_size());
    step.schedule = settings_;
    step.num_microbatches = num_microbatches;
    slots_.emplace(step, state_.groups.at.pp, schedule_);
    final_gradients_ = layout::final_gradients(schedule_, stage_.chunks());
    weights_wait_ = layout::weights_wait(schedule_, stage_.chunks(), num_microbatches);
    pairs_.clear();
    for (int pair = 0; settings_.pairs && pair < stage_.chunks() * stage_.chunks(); ++pair)
      pairs_.push_back(stage_.pair_steps(pair / stage_.chunks(), pair % stage_.chunks()));
    scheduled_ = num_microbatches;
  }
  return schedule_;
}

BatchResult StepRunner::train(const std::vector<Microbatch>& microbatches, double loss_scale, int64_t iteration) {
  BatchResult result = run({.microbatches = microbatches,
                            .schedule = training_schedule(static_cast<int64_t>(microbatches.size())),
                            .forward_only = false,
                            .loss_scale = loss_scale,
                            .timers = timers_,
                            .sums = sums_});
  if (routing_trace_) routing_trace_->end_step(iteration);
  return result;
}

BatchResult StepRunner::evaluate(const std::vector<Microbatch>& microbatches) {
  const auto count = static_cast<int64_t>(microbatches.size());
  const auto schedule = layout::schedule_forward_only(state_.groups.grid.pp, stage_.chunks(), count);
  return run(
      {.microbatches = microbatches, .schedule = schedule, .forward_only = true, .loss_scale = 1, .sums = sums_});
}

StepRunner::Kept& StepRunner::kept(const ScheduleAction& action, int chunk) {
  return kept_[static_cast<size_t>(action.microbatch) * static_cast<size_t>(stage_.chunks()) +
               static_cast<size_t>(chunk)];
}

bool StepRunner::receives(const ScheduleAction& action) const {
  const auto source = layout::source_of(stage_.placement(), state_.groups.at.pp, action);
  return source && source->stage != state_.groups.at.pp;
}

P2PCommunicator::Arrival StepRunner::post_input(const Batch& batch, const ScheduleAction& action) {
  if (!receives(action)) return {};
  const Microbatch& microbatch = batch.microbatch(action);
  const core::Dims shape = stage_.hidden_shape(microbatch.batch, microbatch.seq);
  const int source = layout::source_of(stage_.placement(), state_.groups.at.pp, action)->stage;
  return action.kind == ScheduleAction::kForward ? links_.post_forward(shape, source)
                                                 : links_.post_backward(shape, source);
}

core::Tensor StepRunner::take_input(Batch& batch, size_t i) {
  const std::vector<ScheduleAction>& schedule = batch.schedule;
  const bool posts_early = stage_.chunks() > 1 && state_.config.parallel.overlap_p2p_communication;
  core::Tensor input = (posts_early && i > 0 ? std::exchange(batch.next, {}) : post_input(batch, schedule[i])).take();
  if (posts_early && i + 1 < schedule.size()) batch.next = post_input(batch, schedule[i + 1]);
  if (receives(schedule[i])) return input;
  Kept& here = kept(schedule[i], schedule[i].chunk);
  return std::move(schedule[i].kind == ScheduleAction::kForward ? here.input : here.gradient);
}

void StepRunner::hand_on(const ScheduleAction& action, core::Tensor output) {
  const auto target = layout::target_of(stage_.placement(), state_.groups.at.pp, action);
  if (!target) return;
  const bool forward = action.kind == ScheduleAction::kForward;
  if (target->stage == state_.groups.at.pp) {
    Kept& there = kept(action, target->chunk);
    (forward ? there.input : there.gradient) = std::move(output);
  } else if (forward) {
    links_.send_forward(std::move(output), target->stage);
  } else {
    links_.send_backward(std::move(output), target->stage);
  }
}

GptStage::Forward StepRunner::forward(Batch& batch, const ScheduleAction& action, core::Tensor input) {
  const Microbatch& microbatch = batch.microbatch(action);
  std::optional<GptStage::Forward::Training> training;
  if (!batch.forward_only) {
    const bool per_token = state_.config.training.calculate_per_token_loss;
    const double microbatches =
        static_cast<double>(batch.microbatches.size()) * state_.groups.grid.dp / state_.replicas_averaged();
    const double tokens = microbatch.loss_tokens();
    // per_token: the update divides by the tokens of all micro-batches, and with them a part of the auxiliary losses.
    const auto positions = static_cast<double>(microbatch.positions_without_padding());
    const LossScales scales{.tokens = batch.loss_scale * (per_token    ? 1.0
                                                          : tokens > 0 ? 1.0 / (tokens * microbatches)
                                                                       : 0.0),
                            .auxiliary = batch.loss_scale * (per_token ? positions : 1.0 / microbatches)};
    training.emplace(GptStage::Forward::Training{scales, slots_->of(action)});
  }
  return {stage_, action.chunk, microbatch, std::move(input), kept(action, action.chunk).activations, training};
}

GptStage::Backward StepRunner::backward(Batch& batch, const ScheduleAction& action, core::Tensor gradient) {
  StageActivations& activations = kept(action, action.chunk).activations;
  const Microbatch& microbatch = batch.microbatch(action);
  const auto count = static_cast<int64_t>(batch.microbatches.size());
  const DeferredGradients deferred = {
      .layers = action.kind == ScheduleAction::kBackwardInput,
      .leave = weights_wait_[static_cast<size_t>(action.microbatch * stage_.chunks() + action.chunk)],
      .output = stage_.is_last_chunk(action.chunk) &&
                action.microbatch >= count - deferred_output_gradients(state_.config.parallel, count)};
  return {stage_, action.chunk, microbatch, std::move(gradient), activations, deferred, leaves(batch, action)};
}

// action: of batch.schedule, which is schedule_ where there are backwards.
layout::FinalGradients StepRunner::leaves(const Batch& batch, const ScheduleAction& action) const {
  return final_gradients_[static_cast<size_t>(&action - batch.schedule.data())];
}

void StepRunner::run_step(Batch& batch, const ScheduleAction& action, GptStage::Forward& forward,
                          const layout::ChunkStep& step) {
  forward.run(step);
  if (step.step != layout::SubStep::kResult) return;
  hand_on(action, forward.take_hidden());
  if (!stage_.is_last_chunk(action.chunk)) return;
  const LossValue& loss = forward.loss();
  batch.sums[0] += loss.sum;
  batch.sums[1] += loss.tokens;
  const double tokens = batch.microbatch(action).loss_tokens();
  batch.sums[2] += tokens > 0 ? loss.sum / tokens : 0.0;
  if (batch.forward_only) return;
  const std::vector<MtpActivations>& mtp = kept(action, action.chunk).activations.mtp;
  for (size_t k = 0; k < mtp.size(); ++k) {
    const double of_layer = mtp[k].rolled.loss_tokens();
    batch.sums[kLossSums + k] += of_layer > 0 ? mtp[k].value.sum / of_layer : 0.0;
  }
}

void StepRunner::run_step(Batch&, const ScheduleAction& action, GptStage::Backward& backward,
                          const layout::ChunkStep& step) {
  backward.run(step);
  if (step.step == layout::SubStep::kResult) hand_on(action, backward.take_gradient());
}

void StepRunner::prepare(const Batch& batch, size_t i, size_t count) {
  stage_.settle_operands();
  for (const ScheduleAction& action : batch.actions(i, count)) {
    if (layout::begins_backward(action)) stage_.prepare_backward(kept(action, action.chunk).activations);
  }
  if (i + count == batch.schedule.size()) return;
  const ScheduleAction& next = batch.schedule[i + count];
  if (next.kind == ScheduleAction::kBackwardWeight) kept(next, next.chunk).activations.weights.prefetch();
}

void StepRunner::enter(const Batch& batch, const ScheduleAction& action) {
  if (state_.tensors != nullptr && !batch.forward_only) state_.tensors->enter(batch.microbatch(action));
}

void StepRunner::run_action(Batch& batch, const ScheduleAction& action, core::Tensor input) {
  enter(batch, action);
  const ActionSpan span(state_.ops.recorder, batch.timers, action);
  switch (action.kind) {
    case ScheduleAction::kForward: {
      GptStage::Forward pass = forward(batch, action, std::move(input));
      for (const layout::ChunkStep& step : stage_.forward_steps(action.chunk)) run_step(batch, action, pass, step);
      return;
    }
    case ScheduleAction::kBackward:
    case ScheduleAction::kBackwardInput: {
      GptStage::Backward pass = backward(batch, action, std::move(input));
      for (const layout::ChunkStep& step : stage_.backward_steps(action.chunk)) run_step(batch, action, pass, step);
      return;
    }
    case ScheduleAction::kBackwardWeight:
      return stage_.backward_weight(action.chunk, kept(action, action.chunk).activations, leaves(batch, action));
    case ScheduleAction::kRecompute:
      return stage_.recompute(action.chunk, batch.microbatch(action), kept(action, action.chunk).activations);
  }
}

void StepRunner::run_pair(Batch& batch, std::span<const ScheduleAction> pair, core::Tensor input,
                          core::Tensor gradient) {
  GptStage::Forward ahead = forward(batch, pair[0], std::move(input));
  GptStage::Backward back = backward(batch, pair[1], std::move(gradient));
  const std::vector<layout::PairStep>& steps =
      pairs_[static_cast<size_t>(pair[0].chunk * stage_.chunks() + pair[1].chunk)];
  for (size_t i = 0; i < steps.size();) {
    const bool is_forward = steps[i].is_forward;
    const ScheduleAction& action = pair[is_forward ? 0 : 1];
    enter(batch, action);
    const ActionSpan span(state_.ops.recorder, batch.timers, action);
    for (; i < steps.size() && steps[i].is_forward == is_forward; ++i) {
      is_forward ? run_step(batch, action, ahead, steps[i].of_chunk) : run_step(batch, action, back, steps[i].of_chunk);
    }
  }
}

BatchResult StepRunner::run(Batch batch) {
  replica_sums_.wait();  // of a batch whose loss nobody has awaited
  sums_.assign(kLossSums + static_cast<size_t>(state_.config.model.mtp_num_layers), 0.0);
  kept_.resize(batch.microbatches.size() * static_cast<size_t>(stage_.chunks()));
  core::Endpoint& endpoint = state_.groups.world.endpoint();
  const ops::ProgressInKernels progress(endpoint);
  for (size_t i = 0; i < batch.schedule.size();) {
    const bool is_pair =
        !batch.forward_only && settings_.pairs && layout::begins_pair(stage_.placement().order(), batch.schedule, i);
    const std::span<const ScheduleAction> actions = batch.actions(i, is_pair ? 2 : 1);
    const core::FlightPhase phase(endpoint.flight(), layout::action_name(actions[0].kind).data(),
                                  static_cast<int32_t>(actions[0].microbatch));
    prepare(batch, i, actions.size());
    core::Tensor input = take_input(batch, i), second = is_pair ? take_input(batch, i + 1) : core::Tensor();
    if (observer_ != nullptr) observer_->begins(actions);
    if (is_pair) {
      run_pair(batch, actions, std::move(input), std::move(second));
    } else {
      run_action(batch, actions[0], std::move(input));
    }
    if (observer_ != nullptr) observer_->ends(actions);
    i += actions.size();
  }
  if (!batch.forward_only && state_.config.parallel.defer_embedding_wgrad_compute) {
    const Span whole(state_.ops.recorder, Category::kUserAnnotation, "output-layer-weight");
    stage_.backward_output_weight();
  }
  links_.finish();
  if (!batch.forward_only) stage_.fold_tied_gradient();
  core::Communicator& replicas = state_.groups.dp_cp;
  if (replicas.size() > 1) {
    replica_sums_ = replicas.iallreduce({sums_.data(), core::DType::kFp64, {static_cast<int64_t>(sums_.size())}});
  }
  BatchResult result;
  result.grad_scale = 1 / batch.loss_scale;
  is_complete_ = false;
  num_microbatches_ = static_cast<int64_t>(batch.microbatches.size());
  if (batch.forward_only || !state_.config.parallel.async_log_allreduce) await_loss(result);
  if (!batch.forward_only && state_.config.model.has_experts()) {
    record_rows(state_, routing_);
    result.experts = sum_over_ranks(state_.groups.world, state_.config.model, routing_, state_.groups.grid.etp);
    add_holders(state_, result.experts);
  }
  routing_.clear();
  return result;
}

void StepRunner::await_loss(BatchResult& result) {
  if (std::exchange(is_complete_, true)) return;
  replica_sums_.wait();
  // Only the stage of the loss has sums; the others add zeros, which changes no bit.
  if (state_.groups.pp.size() > 1) state_.groups.pp.allreduce(sums_);
  const bool per_token = state_.config.training.calculate_per_token_loss;
  const double tokens = sums_[1], microbatches = static_cast<double>(num_microbatches_ * state_.groups.grid.dp);
  result.tokens = tokens;
  result.mtp_losses.clear();
  for (size_t k = kLossSums; k < sums_.size(); ++k) result.mtp_losses.push_back(sums_[k] / microbatches);
  result.loss = per_token ? (tokens > 0 ? sums_[0] / tokens : 0.0) : sums_[2] / microbatches;
  if (per_token) result.grad_scale *= tokens > 0 ? 1 / tokens : 0.0;
}

}  // namespace ms::train
