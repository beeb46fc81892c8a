#include "train/loop/step_guard.h"

#include <cmath>
#include <string>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/log.h"

namespace ms::train {
namespace {

using core::cat;

// What comes after so many is not worth computing: with the same weights, the losses that follow are as bad.
constexpr int kMaxNansInARow = 100;

}  // namespace

void StepGuard::refuse(const StepMetrics& step, const std::string& why) {
  const std::string text = cat("lm loss ", step.loss, ", grad norm ", step.grad_norm, ": ", why);
  core::collectively(world_, cat("iteration ", step.iteration),
                     [&] { throw core::Error(core::ErrorCode::kInvalidArgument, text); });
  throw core::Error(core::ErrorCode::kInternal, text);  // collectively() has thrown
}

bool StepGuard::accepts(StepMetrics& step) {
  const TrainingConfig& training = config_.training;
  step.nan = !std::isfinite(step.loss) || !std::isfinite(step.grad_norm);
  // With a dynamic loss scale overflow is its signal to shrink, not an error.
  if (step.nan && training.check_for_nan_in_loss_and_grad && !scaler_.is_dynamic()) {
    refuse(step,
           cat("not finite. What was saved is as it was. Lower --lr, leave the samples out (--iterations-to-skip ",
               step.iteration, "), or let such steps be skipped (--no-check-for-nan-in-loss-and-grad)"));
  }
  const bool scale_may_help = scaler_.is_dynamic() && scaler_.scale() > training.min_loss_scale;
  scaler_.update(step.nan);
  if (step.nan && !scale_may_help && ++nans_in_a_row_ >= kMaxNansInARow) {
    refuse(step, cat("not finite, as of each of the last ", kMaxNansInARow, " steps",
                     scaler_.is_dynamic() ? " at --min-loss-scale" : "",
                     ", without an update between. What was saved is as it was: go on from before they began, with a "
                     "lower --lr"));
  }
  const bool spike = !step.nan && spikes_.is_spike(step.loss, step.grad_norm);
  step.skipped = step.nan || spike;
  if (spike &&
      spikes_.skip()) {  // a window's length of them: the mean that they are held against is of no use any more
    refuse(step, cat("the last of ", training.spike_skip_window, " steps in a row above --spike-skip-factor ",
                     training.spike_skip_factor,
                     " x their mean, as many as --spike-skip-window, without an update between. What was saved is as "
                     "it was. Lower --lr, or raise --spike-skip-factor (0: none)"));
  }
  if (step.skipped) {
    const std::string above = cat(", above --spike-skip-factor ", training.spike_skip_factor, " x their mean");
    core::log_warning("train.step", cat("iteration ", step.iteration, " is not applied: lm loss ", step.loss,
                                        ", grad norm ", step.grad_norm, spike ? above : ""));
    return false;
  }
  nans_in_a_row_ = 0;
  spikes_.accept(step.loss, step.grad_norm);
  return true;
}

void StepGuard::restore(const nlohmann::json& scaler, const nlohmann::json& spikes) {
  scaler_.restore(scaler);
  spikes_.restore(spikes);
}

}  // namespace ms::train
