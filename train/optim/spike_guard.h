// Detects a step whose loss or gradient norm is far above its recent mean; such a step is not applied
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
  // Counts a spike. True if it is the `window`th since a step was applied: while none is, the mean stands still, so a
  // run that has come to another level for good would never be updated again.
  bool skip();

  // {"steps": [[loss, grad_norm], ..], oldest first, "spikes_in_a_row": n}
  nlohmann::json state() const;
  void restore(const nlohmann::json& saved);  // throws kCorruptData on nonsense

 private:
  struct Step {
    double loss, grad_norm;
  };
  double factor_;
  size_t window_;
  std::deque<Step> steps_;
  size_t in_a_row_ = 0;  // spikes since a step was applied
};

}  // namespace ms::train
