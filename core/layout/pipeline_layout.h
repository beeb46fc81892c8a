// Megatron's --pipeline-model-parallel-layout: what each (virtual) stage holds, as text. "Ettt|(tt|)*6tL": E is the
// embedding, t a layer, m a layer of multi-token prediction, L the loss; | stands between stages; x*n and (..)*n
// repeat; commas mean nothing. Source: megatron/core/transformer/pipeline_parallel_layer_layout.py.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace ms::layout {

// Of each chunk of layers, in the order of the positions (placement.h). The first has the embedding, the last the loss.
struct PipelineLayout {
  std::vector<int64_t> layers;
  std::vector<int64_t> mtp_layers;
};

// Throws kInvalidArgument, naming the flag, for other letters, for more than 2^16 layers and stages, and for layouts
// that Megatron refuses: embedding, layers, multi-token prediction and loss come in this order, embedding and loss
// once.
PipelineLayout parse_pipeline_layout(std::string_view text);

}  // namespace ms::layout
