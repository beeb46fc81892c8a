// One pipeline stage of the model: its layers, in one chunk or, with virtual stages, in several chunks, which a
// micro-batch passes at different times. The first chunk of the model contains the embedding, the last one the loss
// (core/layout/placement.h says on which stages they are).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/layout/buffer_cut.h"
#include "core/layout/final_gradients.h"
#include "core/layout/interleave.h"
#include "core/layout/placement.h"
#include "core/layout/slot_policy.h"
#include "train/memory/activation_swap.h"
#include "train/model/embedding.h"
#include "train/model/loss.h"
#include "train/model/loss_scales.h"
#include "train/model/multi_token_prediction.h"
#include "train/model/parameter_observer.h"
#include "train/model/rotary_embedding.h"
#include "train/model/transformer_layer.h"
#include "train/model/weight_gradients.h"

namespace ms::train {

// What a micro-batch leaves between its forward and its backward through a chunk.
struct StageActivations {
  std::vector<LayerActivations> layers;
  LossActivations loss;
  std::vector<MtpActivations> mtp;
  WeightGradients weights;     // of the layers, between backward_input and backward_weight
  double auxiliary_scale = 0;  // as the forward was given it
};

// Gradients of weights that a backward leaves for later.
struct DeferredGradients {
  bool layers = false;  // of the layers' matrices: backward_weight
  bool leave = false;   // with a swap: the operands of these leave memory until then
  bool output = false;  // of the output layer: backward_output_weight
};

class GptStage {
 public:
  // A forward or a backward that is under way: what runs between two of its sub-steps is up to the caller. The stage,
  // the micro-batch and `saved` must outlive it.
  class Forward;
  class Backward;

  GptStage(RankState& state, ParameterStore& parameters);

  // Lets layers' tensors leave memory between a forward and its backward, and operands of deferred gradients of weights
  // between its parts; null: they stay. Not owned; must outlive the activations.
  void set_swap(ActivationSwap* activations, TensorSwap* operands) {
    swap_ = activations;
    operand_swap_ = operands;
  }

  // Who is told when gradients become final, and is asked before weights are read; null: nobody. Not owned.
  void set_parameter_observer(ParameterObserver* observer) { observer_ = observer; }

  int chunks() const { return static_cast<int>(chunks_.size()); }
  bool is_first_chunk(int chunk) const { return placement_.is_first(place(chunk)); }  // of the model: it takes tokens
  bool is_last_chunk(int chunk) const { return placement_.is_last(place(chunk)); }    // of the model: it gives the loss
  const layout::Placement& placement() const { return placement_; }

  // Shape of what passes between chunks: [seq', batch, hidden].
  core::Dims hidden_shape(int64_t batch, int64_t seq) const;

  // What a Forward and a Backward run, in order.
  const std::vector<layout::ChunkStep>& forward_steps(int chunk) const { return chunk_at(chunk).forward; }
  const std::vector<layout::ChunkStep>& backward_steps(int chunk) const { return chunk_at(chunk).backward; }
  // The sub-steps of a forward through one chunk and a backward through another one, interleaved.
  std::vector<layout::PairStep> pair_steps(int forward_chunk, int backward_chunk) const;
  // Makes what forward has dropped again, before the backward does it.
  void recompute(int chunk, const Microbatch& microbatch, StageActivations& saved);
  // Before the backward, and before the gradient that it waits for: lets what left memory begin to return.
  void prepare_backward(StageActivations& saved);
  // leaves: the gradients that no later backward adds to.
  void backward_weight(int chunk, StageActivations& saved, layout::FinalGradients leaves = {});
  // Between two actions: what was leaving as the one ended has left memory.
  void settle_operands();
  // Of all micro-batches whose backward has deferred it.
  void backward_output_weight() {
    output_weights_.run(observer_);
    announce_final(after_layers());
  }

  // After the last backward of a step.
  void fold_tied_gradient();

  // For generation: the length of the text that forward_hidden is to see, which RoPE scaling may depend on. At first it
  // is the longest one.
  void set_text_length(int64_t tokens);
  // For generation: hidden behind the chunk's layers, and on the last stage the loss head, which has the logits.
  core::Tensor forward_hidden(int chunk, const Microbatch& microbatch, core::Tensor input);
  LossHead* loss_head() { return loss_ ? &*loss_ : nullptr; }

 private:
  struct Chunk {
    int64_t first_layer;  // global
    std::vector<TransformerLayer> layers;
    std::vector<layout::ChunkStep> forward, backward;
  };
  layout::Place place(int chunk) const { return {state_.groups.at.pp, chunk}; }
  const Chunk& chunk_at(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  // Runs a dropped layer again, from the first of its group on. Its weights stay acquired; next: as acquire_weights has
  // it.
  void recompute_group(Chunk& chunk, int64_t layer, StageActivations& saved, const SequenceContext& sequence,
                       int64_t next);
  // Of a dropped layer, the next one before it that has kept its input; of another, the layer itself.
  static size_t first_of_group(size_t layer, const StageActivations& saved);
  // Units, as ParameterObserver has them.
  int64_t after_layers() const { return state_.config.model.num_layers; }
  // By a tied output layer, or by multi-token prediction.
  bool words_are_read_behind() const {
    return !state_.config.model.untie_embeddings_and_output_weights || state_.config.model.mtp_num_layers > 0;
  }
  void acquire_gradients(int64_t unit) {
    if (observer_ != nullptr) observer_->acquire_gradients(unit);
  }
  void announce_added(int64_t unit) {
    if (observer_ != nullptr) observer_->gradients_are_added(unit);
  }
  void announce_final(int64_t unit) {
    if (observer_ != nullptr) observer_->gradients_are_final(unit);
  }
  void acquire_weights(int64_t unit, int64_t next = ParameterObserver::kNone) {
    if (observer_ != nullptr) observer_->acquire_weights(unit, next);
  }
  void release_weights(int64_t unit) {
    if (observer_ != nullptr) observer_->release_weights(unit);
  }
  void acquire_output_weights(int64_t next = ParameterObserver::kNone);
  void release_output_weights();

  RankState& state_;
  layout::Placement placement_;
  bool tokens_travel_;  // to experts of other ranks
  RotaryTables rope_;
  std::optional<Embedding> embedding_;
  std::vector<Chunk> chunks_;
  std::optional<LossHead> loss_;
  std::optional<MultiTokenPrediction> mtp_;
  WeightGradients output_weights_;
  ParameterObserver* observer_ = nullptr;
  ActivationSwap* swap_ = nullptr;
  TensorSwap* operand_swap_ = nullptr;
  WeightGradients* leaving_operands_ = nullptr;
};

class GptStage::Forward {
 public:
  // For a backward that follows.
  struct Training {
    LossScales scales;               // of the losses whose gradient the backward starts from
    const layout::SlotTable& slots;  // what becomes of the chunk's activations until then; must outlive the forward
  };
  // input: hidden from the chunk before (ignored by the first). training: none: evaluation, nothing is kept.
  Forward(GptStage& stage, int chunk, const Microbatch& microbatch, core::Tensor input, StageActivations& saved,
          std::optional<Training> training);

  void run(const layout::ChunkStep& step);
  // After the last sub-step: hidden for the next chunk; of the last chunk it is undefined, and there is a loss.
  core::Tensor take_hidden() { return std::move(hidden_); }
  const LossValue& loss() const { return loss_; }
  // Instead of the last sub-step: hidden behind the layers, of any chunk.
  core::Tensor finish_layers();

 private:
  void begin();
  void forward_loss();
  void finish_attention(size_t layer);
  void end_layer(size_t layer);
  int64_t unit_behind(size_t layer) const;  // whose weights are read next, or kNone

  GptStage& stage_;
  int index_;
  Chunk& chunk_;
  const Microbatch& microbatch_;
  StageActivations& saved_;
  std::optional<Training> training_;
  SequenceContext sequence_;
  core::Tensor hidden_;
  PartialSum sum_;  // of the block that has been started
  LossValue loss_;
  bool has_begun_ = false;
};

class GptStage::Backward {
 public:
  // dy: gradient of the output (ignored by the last chunk). leaves: the gradients that no later backward adds to.
  Backward(GptStage& stage, int chunk, const Microbatch& microbatch, core::Tensor dy, StageActivations& saved,
           DeferredGradients deferred = {}, layout::FinalGradients leaves = {});

  void run(const layout::ChunkStep& step);
  // After the last sub-step: the gradient of the input; undefined for the first chunk.
  core::Tensor take_gradient() { return std::move(gradient_); }

 private:
  void begin();
  void backward_loss();
  int64_t unit_before(size_t layer) const;  // whose weights are read next, or kNone
  void begin_layer(size_t layer);           // ends the one behind it
  void end_layer(size_t layer);
  void backward_embedding();

  GptStage& stage_;
  int index_;
  Chunk& chunk_;
  const Microbatch& microbatch_;
  StageActivations& saved_;
  DeferredGradients deferred_;
  layout::FinalGradients leaves_;
  SequenceContext sequence_;
  core::Tensor gradient_;
  PartialSum sum_;
  bool has_begun_ = false;
};

}  // namespace ms::train
