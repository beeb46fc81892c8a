// Loss scaling for fp16: the loss is multiplied by a factor that keeps small gradients above fp16's smallest number,
// and the gradients are divided by it (megatron/core/optimizer/grad_scaler.py, DynamicGradScaler and
// ConstantGradScaler).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "train/config.h"

namespace ms::train {

class LossScaler {
 public:
  // 1 unless config.training.fp16; then --loss-scale if that is given, else dynamic from --initial-loss-scale.
  explicit LossScaler(const TrainingConfig& config);

  double scale() const { return scale_; }
  bool is_dynamic() const { return dynamic_; }
  // After a step; found_inf: its gradients were not finite, so it was skipped. Dynamic: --hysteresis such steps halve
  // the scale, and so does each further one, down to --min-loss-scale, until --loss-scale-window good steps in a row
  // double it and forget them.
  void update(bool found_inf);

  nlohmann::json state() const;  // {"scale", "growth_tracker", "hysteresis_tracker"}; {} unless dynamic
  // Takes what state() gave; nothing if this scaler or the saved one is not dynamic. Throws kCorruptData on nonsense.
  void restore(const nlohmann::json& saved);

 private:
  double scale_ = 1;
  bool dynamic_ = false;
  double min_scale_ = 1;
  int64_t growth_interval_ = 0, hysteresis_ = 0;
  int64_t growth_tracker_ = 0, hysteresis_tracker_ = 0;
};

}  // namespace ms::train
