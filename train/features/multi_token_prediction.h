// Multi-token prediction: how it is trained. How many layers there are is in core/transformer_config.h. Source:
// megatron/core/transformer/multi_token_prediction.py; MindSpeed-LLM's mtp.py.
#pragma once

#include "train/features/feature.h"

namespace ms::train {

struct MultiTokenPredictionConfig {
  double mtp_loss_scaling_factor = 0.1;
  bool mtp_mem_efficient_logits = false;

  template <class Visitor>
  static void fields(Visitor&& field) {
    using C = MultiTokenPredictionConfig;
    field("mtp_loss_scaling_factor", &C::mtp_loss_scaling_factor,
          "Factor of the mean loss of the --mtp-num-layers layers, which is added to the model's");
    field(
        "mtp_mem_efficient_logits", &C::mtp_mem_efficient_logits,
        "With --mtp-num-layers: compute the gradient of a layer's logits as soon as they have given the loss, so that "
        "those of one layer exist at a time (with --loss-chunk-size always so)");
  }
};

Feature multi_token_prediction_feature();

}  // namespace ms::train
