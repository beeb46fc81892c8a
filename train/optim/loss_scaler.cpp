#include "train/optim/loss_scaler.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"

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
    hysteresis_tracker_ = std::max<int64_t>(hysteresis_tracker_ - 1, 0);
    if (hysteresis_tracker_ == 0) scale_ = std::max(scale_ * kBackoff, min_scale_);
  } else if (++growth_tracker_ >= growth_interval_) {  // above it when resumed with a shorter window
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
  const nlohmann::json& scale = core::json_member(saved, "scale", "grad_scaler");
  if (!scale.is_number() || !(scale.get<double>() > 0)) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      core::cat("grad_scaler: \"scale\": expected a number above 0, but it is ", scale.dump()));
  }
  scale_ = scale.get<double>();
  growth_tracker_ = core::json_count(saved, "growth_tracker", "grad_scaler");
  // Megatron, and we once, count on below 0, which says the same as 0.
  hysteresis_tracker_ = std::max<int64_t>(core::json_integer(saved, "hysteresis_tracker", "grad_scaler"), 0);
}

}  // namespace ms::train
