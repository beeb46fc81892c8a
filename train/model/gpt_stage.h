// One pipeline stage of the model: its layers, in one chunk or, with virtual stages, in several chunks, which a
// micro-batch passes at different times. The first chunk of the first stage contains the embedding, the last chunk of
// the last stage the loss.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "train/model/embedding.h"
#include "train/model/loss.h"
#include "train/model/rotary_embedding.h"
#include "train/model/transformer_layer.h"

namespace ms::train {

// What a micro-batch leaves between its forward and its backward through a chunk.
struct StageActivations {
  std::vector<LayerActivations> layers;
  LossActivations loss;
};

class GptStage {
 public:
  GptStage(RankState& state, ParameterStore& parameters);

  int chunks() const { return static_cast<int>(chunks_.size()); }
  bool is_first_chunk(int chunk) const { return embedding_ && chunk == 0; }       // of the model: it takes tokens
  bool is_last_chunk(int chunk) const { return loss_ && chunk == chunks() - 1; }  // of the model: it gives the loss

  // Shape of what passes between chunks: [seq', batch, hidden].
  core::Dims hidden_shape(int64_t batch, int64_t seq) const;

  // input: hidden from the chunk before (ignored by the first). Returns hidden for the next chunk; of the last chunk it
  // is undefined and `loss` is set. loss_scale: of the losses' sum whose gradient backward is to start from; none:
  // evaluation, nothing is kept.
  core::Tensor forward(int chunk, const Microbatch& microbatch, core::Tensor input, StageActivations& saved,
                       LossValue& loss, std::optional<double> loss_scale);
  // dy: gradient of the output (ignored by the last chunk). Returns the gradient of the input; undefined for the first
  // chunk.
  core::Tensor backward(int chunk, const Microbatch& microbatch, core::Tensor dy, StageActivations& saved);

  // After the last backward of a step.
  void fold_tied_gradient() {
    if (embedding_) embedding_->fold_tied_gradient();
  }

  // For generation: the length of the text that forward_hidden is to see, which RoPE scaling may depend on. At first it
  // is the longest one.
  void set_text_length(int64_t tokens);
  // For generation: hidden behind the chunk's layers, and on the last stage the loss head, which has the logits.
  core::Tensor forward_hidden(int chunk, const Microbatch& microbatch, core::Tensor input);
  LossHead* loss_head() { return loss_ ? &*loss_ : nullptr; }

 private:
  using Chunk = std::vector<TransformerLayer>;
  // samples: as in TransformerLayer::forward.
  core::Tensor run_layers(Chunk& layers, core::Tensor hidden, StageActivations& saved, std::span<const int64_t> samples,
                          bool forward_only);
  void recompute_group(Chunk& layers, int64_t layer, StageActivations& saved, std::span<const int64_t> samples);

  RankState& state_;
  std::optional<ops::RopeTable> rope_;
  int64_t text_length_;
  layout::RecomputePlan recompute_;  // of each chunk
  std::optional<Embedding> embedding_;
  std::vector<Chunk> chunks_;
  std::optional<LossHead> loss_;
};

}  // namespace ms::train
