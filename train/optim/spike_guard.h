// Recognises a step whose loss or gradient norm is far above what it was lately: such a step is not applied
// (--spike-skip-factor).
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>

#include "train/config.h"

namespace ms::train {

class SpikeGuard {
 public:
  explicit SpikeGuard(const TrainingConfig& config)
      : factor_(config.spike_skip_factor), window_(static_cast<size_t>(config.spike_skip_window)) {}

  // True if either is above factor x its mean over the last `window` applied steps; never before there are so many, or
  // with factor 0.
  bool is_spike(double loss, double grad_norm) const;
  // Remembers a step that was applied.
  void accept(double loss, double grad_norm);

  nlohmann::json state() const;               // [[loss, grad_norm], ..], oldest first
  void restore(const nlohmann::json& saved);  // throws kCorruptData on nonsense

 private:
  struct Step {
    double loss, grad_norm;
  };
  double factor_;
  size_t window_;
  std::deque<Step> steps_;
};

}  // namespace ms::train
