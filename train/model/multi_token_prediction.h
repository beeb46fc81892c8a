// Multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437, section 2.2; megatron/core/transformer/
// multi_token_prediction.py): layers behind the model's, each of which predicts one token further. Of layer k = 1, 2,
// .. position i reads the token i + k and what layer k - 1 (the model, for k = 1) made of position i:
//
//   x_k = eh_proj [enorm(embedding(token i + k)); hnorm(h_(k-1))],  h_k = final_layernorm(transformer_layer(x_k)),
//
// and h_k goes through the model's output layer, whose loss is that of the label i + k. h_0 is what the model's output
// layer reads. They run as part of the last chunk, and in training only.
#pragma once

#include <vector>

#include "core/layout/slot_policy.h"
#include "train/model/embedding.h"
#include "train/model/loss.h"
#include "train/model/transformer_layer.h"

namespace ms::train {

// What a micro-batch leaves between its forward and its backward through one such layer.
struct MtpActivations {
  Microbatch rolled;      // tokens, labels and mask of the positions that the layer is about (roll)
  core::Tensor embedded;  // [seq', batch, hidden], of its tokens
  ops::NormStatistics enorm, hnorm;
  core::Tensor pair;  // [seq', batch, 2 * hidden]: what eh_proj reads
  LayerActivations layer;
  LossActivations loss;
  LossValue value;
};

class MultiTokenPrediction {
 public:
  // rope: null where the model has no rotary embedding.
  MultiTokenPrediction(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope);

  // normed: what the model's output layer reads, which stays; scale: of its losses. Fills `saved`, one for each layer,
  // with their losses. slots: of the layers.
  void forward(const Microbatch& microbatch, LossHead& head, const core::TensorView& normed, double scale,
               const SequenceContext& sequence, const layout::LayerSlots& slots, std::vector<MtpActivations>& saved);
  // The gradient of main.normed, which ends here unless the output layer's backward still reads it. Empties `saved`.
  core::Tensor backward(LossHead& head, LossActivations& main, const SequenceContext& sequence,
                        WeightGradients& weights, std::vector<MtpActivations>& saved);

 private:
  struct Layer {
    Layer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t k);
    Embedding embedding;
    Norm enorm, hnorm;
    ColumnParallelLinear eh_proj;
    TransformerLayer layer;
    Norm final_norm;
  };
  // [seq', batch, 2 * hidden] -> [seq', batch, hidden]: whole rows, though each rank computes some columns.
  core::Tensor project(Layer& layer, const core::TensorView& pair);
  core::Tensor project_backward(Layer& layer, core::Tensor dy, core::Tensor pair, WeightGradients& weights);

  RankState& state_;
  std::vector<Layer> layers_;
};

}  // namespace ms::train
