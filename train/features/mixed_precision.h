// Weights and activations in 16 bits, gradients and master weights in fp32; fp16 with loss scaling.
// Source: arXiv 1710.03740; megatron/core/optimizer/grad_scaler.py.
#pragma once

#include <cstdint>
#include <optional>

#include "train/features/feature.h"

namespace ms::train {

struct MixedPrecisionConfig {
  bool bf16 = false;
  bool fp16 = false;
  std::optional<double> loss_scale;
  double initial_loss_scale = 4294967296.0;
  double min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = MixedPrecisionConfig;
    field("bf16", &C::bf16, "bf16 weights and activations, fp32 gradients and master weights; off: fp32");
    field("fp16", &C::fp16,
          "fp16 weights and activations with loss scaling, fp32 gradients and master weights; off: fp32");
    field("loss_scale", &C::loss_scale, "fp16: fixed loss scale; default: dynamic");
    field("initial_loss_scale", &C::initial_loss_scale, "fp16: first dynamic loss scale");
    field("min_loss_scale", &C::min_loss_scale, "fp16: smallest dynamic loss scale");
    field("loss_scale_window", &C::loss_scale_window, "fp16: good steps in a row after which the loss scale doubles");
    field("hysteresis", &C::hysteresis, "fp16: overflowing steps after which the loss scale is halved");
  }
};

Feature mixed_precision_feature();

}  // namespace ms::train
