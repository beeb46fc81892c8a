// Whether the numbers of a step allow its update: loss scaling, steps that are not finite, and spikes.
#pragma once

#include <nlohmann/json.hpp>

#include "core/comm/communicator.h"
#include "train/config.h"
#include "train/loop/metrics.h"
#include "train/optim/loss_scaler.h"
#include "train/optim/spike_guard.h"

namespace ms::train {

class StepGuard {
 public:
  // config and world outlive the object.
  StepGuard(const TrainerConfig& config, core::Communicator& world)
      : config_(config), world_(world), scaler_(config.training), spikes_(config.training) {}

  double loss_scale() const { return scaler_.scale(); }

  // Collective, with the loss and gradient norm of a step, which are the same on all ranks: fills nan and skipped.
  // True: the update may be made. Throws kInvalidArgument on all ranks if the run is to end: a number that is not
  // finite and no leave to skip it, or too many steps in a row without an update.
  bool accepts(StepMetrics& step);

  // Of a checkpoint: "grad_scaler" and "spike_guard".
  nlohmann::json scaler_state() const { return scaler_.state(); }
  nlohmann::json spike_state() const { return spikes_.state(); }
  void restore(const nlohmann::json& scaler, const nlohmann::json& spikes);

 private:
  [[noreturn]] void refuse(const StepMetrics& step, const std::string& why);

  const TrainerConfig& config_;
  core::Communicator& world_;
  LossScaler scaler_;
  SpikeGuard spikes_;
  int nans_in_a_row_ = 0;  // since an update, at a loss scale that cannot fall
};

}  // namespace ms::train
