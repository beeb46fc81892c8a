// Weight gradients accumulated in fp32 by the products that compute them. Source: Megatron's
// --no-gradient-accumulation-fusion (megatron/core/tensor_parallel/layers.py), MindSpeed's matmul_add.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct GradientAccumulationFusionConfig {
  bool gradient_accumulation_fusion = true;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = GradientAccumulationFusionConfig;
    field("gradient_accumulation_fusion", &C::gradient_accumulation_fusion,
          "Accumulate the gradients of linear layers in fp32 within their products; off: round each micro-batch's to "
          "the weights' dtype, then add it, as Megatron without this fusion: to compare with such a run");
  }
};

Feature gradient_accumulation_fusion_feature();

}  // namespace ms::train
