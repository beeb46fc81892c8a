#include "train/optim/loss_scaler.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ms::train {
namespace {

constexpr double kGrowth = 2.0, kBackoff = 0.5;

}  // namespace

LossScaler::LossScaler(const TrainingConfig& config)
    : min_scale_(config.min_loss_scale),
      growth_interval_(config.loss_scale_window),
      hysteresis_(config.hysteresis),
      hysteresis_tracker_(config.hysteresis) {
  if (!config.fp16) return;
  dynamic_ = !config.loss_scale.has_value();
  scale_ = config.loss_scale.value_or(config.initial_loss_scale);
}

void LossScaler::update(bool found_inf) {
  if (!dynamic_) return;
  if (found_inf) {
    growth_tracker_ = 0;
    if (--hysteresis_tracker_ <= 0) scale_ = std::max(scale_ * kBackoff, min_scale_);
  } else if (++growth_tracker_ == growth_interval_) {
    growth_tracker_ = 0;
    hysteresis_tracker_ = hysteresis_;
    scale_ *= kGrowth;
  }
}

nlohmann::json LossScaler::state() const {
  if (!dynamic_) return nlohmann::json::object();
  return {{"scale", scale_}, {"growth_tracker", growth_tracker_}, {"hysteresis_tracker", hysteresis_tracker_}};
}

void LossScaler::restore(const nlohmann::json& saved) {
  if (!dynamic_ || !saved.is_object() || saved.empty()) return;
  for (const char* key : {"scale", "growth_tracker", "hysteresis_tracker"}) {
    if (!saved.contains(key) || !saved[key].is_number() || (key == std::string_view("scale") && saved[key] <= 0.0)) {
      throw core::Error(core::ErrorCode::kCorruptData, core::cat("grad_scaler: no usable ", key, " in ", saved.dump()));
    }
  }
  scale_ = saved["scale"];
  growth_tracker_ = saved["growth_tracker"];
  hysteresis_tracker_ = saved["hysteresis_tracker"];
}

}  // namespace ms::train
