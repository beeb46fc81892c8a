#include "train/optim/spike_guard.h"

#include "core/error.h"
#include "core/io/json.h"

namespace ms::train {

bool SpikeGuard::is_spike(double loss, double grad_norm) const {
  if (factor_ == 0 || steps_.size() < window_) return false;
  double losses = 0, norms = 0;
  for (const Step& step : steps_) {
    losses += step.loss;
    norms += step.grad_norm;
  }
  const double limit = factor_ / static_cast<double>(steps_.size());
  return loss > limit * losses || grad_norm > limit * norms;
}

void SpikeGuard::accept(double loss, double grad_norm) {
  if (factor_ == 0) return;
  steps_.push_back({loss, grad_norm});
  if (steps_.size() > window_) steps_.pop_front();
  in_a_row_ = 0;
}

bool SpikeGuard::skip() { return ++in_a_row_ >= window_; }

nlohmann::json SpikeGuard::state() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Step& step : steps_) list.push_back({step.loss, step.grad_norm});
  return {{"steps", list}, {"spikes_in_a_row", in_a_row_}};
}

void SpikeGuard::restore(const nlohmann::json& saved) {
  if (!saved.is_object()) return;
  for (const nlohmann::json& step : core::json_array(saved, "steps", "spike_guard")) {
    if (!step.is_array() || step.size() != 2 || !step[0].is_number() || !step[1].is_number()) {
      throw core::Error(core::ErrorCode::kCorruptData, core::cat("spike_guard: ", step.dump(), " in the checkpoint"));
    }
    accept(step[0], step[1]);
  }
  in_a_row_ = static_cast<size_t>(core::json_count(saved, "spikes_in_a_row", "spike_guard"));
}

}  // namespace ms::train
