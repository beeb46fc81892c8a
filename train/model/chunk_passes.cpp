// The forward and the backward of a micro-batch through a chunk, in sub-steps (gpt_stage.h).
#include <utility>

#include "train/model/gpt_stage.h"

namespace ms::train {

using layout::ChunkStep;
using layout::SubStep;

GptStage::Forward::Forward(GptStage& stage, int chunk, const Microbatch& microbatch, core::Tensor input,
                           StageActivations& saved, std::optional<Training> training)
    : stage_(stage),
      index_(chunk),
      chunk_(stage.chunks_[static_cast<size_t>(chunk)]),
      microbatch_(microbatch),
      saved_(saved),
      training_(training),
      sequence_(sequence_context(microbatch, /*training=*/training.has_value())),
      hidden_(std::move(input)) {
  saved_.layers.resize(chunk_.layers.size());
  if (training) saved_.auxiliary_scale = training->scales.auxiliary;
}

void GptStage::Forward::begin() {
  if (std::exchange(has_begun_, true) || !stage_.is_first_chunk(index_)) return;
  stage_.acquire_weights(layout::kWordsUnit, layout::kPositionsUnit);
  stage_.acquire_weights(layout::kPositionsUnit, chunk_.layers.empty() ? ParameterObserver::kNone : chunk_.first_layer);
  hidden_ = stage_.embedding_->forward(microbatch_, sequence_.samples);
  for (const int64_t unit : {layout::kWordsUnit, layout::kPositionsUnit}) stage_.release_weights(unit);
}

int64_t GptStage::Forward::unit_behind(size_t layer) const {
  if (layer + 1 < chunk_.layers.size()) return chunk_.first_layer + static_cast<int64_t>(layer) + 1;
  return stage_.is_last_chunk(index_) ? stage_.after_layers() : ParameterObserver::kNone;
}

void GptStage::Forward::forward_loss() {
  saved_.loss.input = std::move(hidden_);
  stage_.acquire_output_weights();
  LossHead& head = *stage_.loss_;
  const bool predicts_more = training_ && stage_.mtp_;
  head.normalize(saved_.loss);
  if (predicts_more) {
    stage_.mtp_->forward(microbatch_, head, saved_.loss.normed, training_->scales.tokens, sequence_,
                         layout::mtp_slots(training_->slots), saved_.mtp);
  }
  loss_ = head.forward_output(microbatch_, saved_.loss,
                              training_ ? std::optional(training_->scales.tokens) : std::nullopt, predicts_more);
  stage_.release_output_weights();
}

void GptStage::Forward::finish_attention(size_t layer) {
  chunk_.layers[layer].finish_attention(std::move(sum_), saved_.layers[layer], sequence_);
}

void GptStage::Forward::end_layer(size_t layer) {
  LayerActivations& kept = saved_.layers[layer];
  hidden_ = chunk_.layers[layer].finish_feed_forward(std::move(sum_), kept, sequence_);
  stage_.release_weights(chunk_.first_layer + static_cast<int64_t>(layer));
  stage_.state_.groups.world.endpoint().progress();
  if (!training_) {
    kept = {};
    return;
  }
  ActivationSwap* const swap = stage_.swap_;
  if (swap != nullptr) swap->settle();
  if (kept.slots.runs_again()) kept.drop();
  if (swap != nullptr) swap->swap_out(kept);
}

core::Tensor GptStage::Forward::finish_layers() {
  begin();
  if (!chunk_.layers.empty()) end_layer(chunk_.layers.size() - 1);
  return std::move(hidden_);
}

void GptStage::Forward::run(const ChunkStep& step) {
  const auto layer = static_cast<size_t>(step.layer);
  switch (step.step) {
    case SubStep::kAttention:
      begin();
      if (layer > 0) end_layer(layer - 1);
      saved_.layers[layer].input = std::move(hidden_);
      saved_.layers[layer].slots = training_ ? training_->slots[step.layer] : layout::LayerSlots::all_dropped();
      stage_.acquire_weights(chunk_.first_layer + step.layer, unit_behind(layer));
      sum_ = chunk_.layers[layer].start_attention(saved_.layers[layer], sequence_);
      return;
    case SubStep::kDispatch:
      finish_attention(layer);
      return chunk_.layers[layer].dispatch(saved_.layers[layer], sequence_);
    case SubStep::kExperts:
      if (stage_.tokens_travel_) return chunk_.layers[layer].run_experts(saved_.layers[layer], sequence_);
      [[fallthrough]];
    case SubStep::kMlp:
      finish_attention(layer);
      sum_ = chunk_.layers[layer].start_feed_forward(saved_.layers[layer], sequence_);
      return;
    case SubStep::kCombine:
      return chunk_.layers[layer].combine(saved_.layers[layer]);
    case SubStep::kAttentionReduce:
    case SubStep::kMlpReduce:
      return sum_.start();
    case SubStep::kResult:
      hidden_ = finish_layers();
      if (stage_.is_last_chunk(index_)) forward_loss();
      return;
  }
}

GptStage::Backward::Backward(GptStage& stage, int chunk, const Microbatch& microbatch, core::Tensor dy,
                             StageActivations& saved, DeferredGradients deferred, layout::FinalGradients leaves)
    : stage_(stage),
      index_(chunk),
      chunk_(stage.chunks_[static_cast<size_t>(chunk)]),
      microbatch_(microbatch),
      saved_(saved),
      deferred_(deferred),
      leaves_(leaves),
      sequence_(sequence_context(microbatch, /*training=*/true, saved.auxiliary_scale)),
      gradient_(std::move(dy)) {
  TensorSwap* const leave = deferred.leave ? stage.operand_swap_ : nullptr;
  if (deferred.layers) saved.weights.defer(leave);
  if (leave != nullptr) stage.leaving_operands_ = &saved.weights;
  if (deferred.output) stage.output_weights_.defer();
}

void GptStage::Backward::begin() {
  if (!std::exchange(has_begun_, true) && stage_.is_last_chunk(index_)) backward_loss();
}

void GptStage::Backward::backward_loss() {
  const bool adds_to_words = stage_.words_are_read_behind() && !deferred_.output;
  stage_.acquire_gradients(stage_.after_layers());
  if (adds_to_words) stage_.acquire_gradients(layout::kWordsUnit);
  stage_.acquire_output_weights(unit_before(chunk_.layers.size()));
  core::Tensor of_mtp;
  if (stage_.mtp_) {
    of_mtp = stage_.mtp_->backward(*stage_.loss_, saved_.loss, sequence_, stage_.output_weights_, saved_.mtp);
  }
  gradient_ = stage_.loss_->backward(microbatch_, saved_.loss, stage_.output_weights_, std::move(of_mtp));
  stage_.release_output_weights();
  stage_.announce_added(stage_.after_layers());
  if (adds_to_words) stage_.announce_added(layout::kWordsUnit);
  if (leaves_.output && !deferred_.output) stage_.announce_final(stage_.after_layers());
}

int64_t GptStage::Backward::unit_before(size_t layer) const {
  if (layer == 0) return ParameterObserver::kNone;
  const bool is_layer = layer < chunk_.layers.size();
  const bool before_is_complete = is_layer && first_of_group(layer, saved_) < layer;  // once its group has run again
  const size_t before = before_is_complete ? layer - 1 : first_of_group(layer - 1, saved_);
  return chunk_.first_layer + static_cast<int64_t>(before);
}

void GptStage::Backward::begin_layer(size_t layer) {
  begin();
  if (layer + 1 < chunk_.layers.size()) end_layer(layer + 1);
  LayerActivations& kept = saved_.layers[layer];
  if (stage_.swap_ != nullptr) {
    stage_.swap_->swap_in(kept);
    if (layer > 0) stage_.swap_->prefetch(saved_.layers[layer - 1]);
  }
  const int64_t unit = chunk_.first_layer + static_cast<int64_t>(layer);
  if (kept.complete) {
    stage_.acquire_weights(unit, unit_before(layer));
  } else {
    stage_.recompute_group(chunk_, static_cast<int64_t>(layer), saved_, sequence_, unit_before(layer));
  }
  stage_.acquire_gradients(unit);
}

void GptStage::Backward::end_layer(size_t layer) {
  gradient_ =
      chunk_.layers[layer].finish_attention_backward(std::move(sum_), std::move(gradient_), saved_.layers[layer]);
  saved_.weights.swap_out();
  const int64_t unit = chunk_.first_layer + static_cast<int64_t>(layer);
  stage_.release_weights(unit);
  stage_.announce_added(unit);
  if (leaves_.layers) stage_.announce_final(unit);
  stage_.state_.groups.world.endpoint().progress();
}

void GptStage::Backward::backward_embedding() {
  const bool adds_to_words = stage_.embedding_->adds_words_to_main_grad();
  if (adds_to_words) stage_.acquire_gradients(layout::kWordsUnit);
  stage_.acquire_gradients(layout::kPositionsUnit);
  stage_.embedding_->backward(microbatch_, std::move(gradient_), microbatch_.samples);
  if (adds_to_words) stage_.announce_added(layout::kWordsUnit);
  stage_.announce_added(layout::kPositionsUnit);
}

void GptStage::Backward::run(const ChunkStep& step) {
  const auto layer = static_cast<size_t>(step.layer);
  switch (step.step) {
    case SubStep::kCombine:
      begin_layer(layer);
      return chunk_.layers[layer].combine_backward(gradient_, saved_.layers[layer], sequence_, saved_.weights);
    case SubStep::kExperts:
      if (stage_.tokens_travel_) return chunk_.layers[layer].run_experts_backward(saved_.layers[layer], saved_.weights);
      [[fallthrough]];
    case SubStep::kMlp:
      begin_layer(layer);
      sum_ =
          chunk_.layers[layer].start_feed_forward_backward(gradient_, saved_.layers[layer], sequence_, saved_.weights);
      return;
    case SubStep::kDispatch:
      return chunk_.layers[layer].dispatch_backward(saved_.layers[layer], saved_.weights);
    case SubStep::kAttention:
      gradient_ = chunk_.layers[layer].finish_feed_forward_backward(std::move(sum_), std::move(gradient_),
                                                                    saved_.layers[layer], sequence_, saved_.weights);
      sum_ = chunk_.layers[layer].start_attention_backward(gradient_, saved_.layers[layer], sequence_, saved_.weights);
      return;
    case SubStep::kMlpReduce:
    case SubStep::kAttentionReduce:
      return sum_.start();
    case SubStep::kResult:
      begin();
      if (!chunk_.layers.empty()) end_layer(0);
      if (stage_.is_first_chunk(index_)) backward_embedding();
      return;
  }
}

}  // namespace ms::train
