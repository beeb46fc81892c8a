// One pipeline stage of the model: its layers, with the embedding on the first and the loss on the last.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "train/model/embedding.h"
#include "train/model/loss.h"
#include "train/model/transformer_layer.h"

namespace ms::train {

// What a micro-batch leaves between its forward and its backward on a stage.
struct StageActivations {
  std::vector<LayerActivations> layers;
  LossActivations loss;
};

class GptStage {
 public:
  GptStage(RankState& state, ParameterStore& parameters);

  // Shape of what passes between stages: [seq', batch, hidden].
  core::Dims hidden_shape(int64_t batch, int64_t seq) const;

  // input: hidden from the stage before (ignored on the first). Returns hidden for the next stage; on the last stage it
  // is undefined and `loss` is set. forward_only: nothing is kept.
  core::Tensor forward(const Microbatch& microbatch, core::Tensor input, StageActivations& saved, LossValue& loss,
                       bool forward_only);
  // dy: gradient of the output (ignored on the last stage, which starts from loss_scale). Returns the gradient of the
  // input; undefined on the first stage.
  core::Tensor backward(const Microbatch& microbatch, core::Tensor dy, StageActivations& saved, double loss_scale);

  // For generation: hidden of this stage, and on the last stage the logits at `position`.
  core::Tensor forward_hidden(const Microbatch& microbatch, core::Tensor input);
  LossHead* loss_head() { return loss_ ? &*loss_ : nullptr; }

 private:
  core::Tensor run_layers(core::Tensor hidden, StageActivations& saved, bool forward_only);
  void recompute_group(int64_t layer, StageActivations& saved);

  RankState& state_;
  ops::RopeTable rope_;
  RecomputePlan recompute_;
  std::optional<Embedding> embedding_;
  std::vector<TransformerLayer> layers_;
  std::optional<LossHead> loss_;
};

}  // namespace ms::train
