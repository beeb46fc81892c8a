// How a trace names a layer of the model with experts.
#pragma once

#include "core/trace/expert_names.h"
#include "core/transformer_config.h"

namespace ms::train {

// layer: global index; those of multi-token prediction come after the decoder's.
inline core::trace::ExpertLayer traced_layer(const core::TransformerConfig& model, int64_t layer) {
  if (layer < model.num_layers) return {-1, layer};
  return {layer - model.num_layers, 0};
}

}  // namespace ms::train
