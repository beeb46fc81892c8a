// What a micro-batch's losses are multiplied by before their gradients are added to those of other micro-batches.
#pragma once

namespace ms::train {

struct LossScales {
  double tokens = 1;  // of the sum of its unmasked tokens' losses
  // Of each auxiliary loss of a layer with experts, which is one number for the micro-batch: as the mean loss of a
  // micro-batch (MoEAuxLossAutoScaler, megatron/core/transformer/moe/moe_utils.py).
  double auxiliary = 0;
};

}  // namespace ms::train
