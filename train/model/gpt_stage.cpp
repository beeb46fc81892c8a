#include "train/model/gpt_stage.h"

#include <utility>

#include "core/error.h"
#include "core/layout/model_layout.h"

namespace ms::train {
namespace {

// Generated text may grow as long as the model can read; a training step sees --seq-length.
int64_t positions(const TrainerConfig& config) {
  return config.generate.generate.empty() ? config.training.seq_length : config.model.max_position_embeddings;
}

}  // namespace

GptStage::GptStage(RankState& state, ParameterStore& parameters)
    : state_(state),
      placement_(layout::placement_of(state.config.model, state.layout())),
      rope_(make_rope_table(state.ops.arena, state.config.model, positions(state.config), positions(state.config))),
      text_length_(positions(state.config)) {
  for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
    if (is_first_chunk(chunk)) embedding_.emplace(state, parameters);
    if (is_last_chunk(chunk)) loss_.emplace(state, parameters);
    const layout::LayerRange range = placement_.layers(place(chunk));
    const layout::RecomputePlan recompute = state.config.recompute_plan().of_place(place(chunk));
    std::vector<TransformerLayer>& layers = chunks_.emplace_back(Chunk{recompute, {}}).layers;
    layers.reserve(static_cast<size_t>(range.count));
    for (int64_t layer = range.first; layer < range.first + range.count; ++layer) {
      layers.emplace_back(state, parameters, rope_ ? &*rope_ : nullptr, layer,
                          recompute.recomputed_outputs(layer - range.first));
    }
  }
}

core::Dims GptStage::hidden_shape(int64_t batch, int64_t seq) const {
  return {state_.sequence_parallel() ? seq / state_.tp_size() : seq, batch, state_.config.model.hidden_size};
}

core::Tensor GptStage::run_layers(Chunk& chunk, core::Tensor hidden, StageActivations& saved,
                                  const SequenceContext& sequence, const Leaving* leaving) {
  saved.layers.resize(chunk.layers.size());
  for (size_t i = 0; i < chunk.layers.size(); ++i) {
    LayerActivations& kept = saved.layers[i];
    kept.input = std::move(hidden);
    hidden = chunk.layers[i].forward(kept, sequence);
    state_.groups.world.endpoint().progress();
    const auto layer = static_cast<int64_t>(i);
    if (leaving == nullptr) {
      kept = {};
      continue;
    }
    if (swap_ != nullptr) swap_->settle();
    if (leaving->recomputed && chunk.recompute.recomputes(layer)) {
      kept.drop();
      if (chunk.recompute.group_begin(layer) != layer) kept.input.reset();
    } else if (swap_ != nullptr && (leaving->last_layer || i + 1 < chunk.layers.size())) {
      swap_->swap_out(kept);
    }
  }
  return hidden;
}

void GptStage::recompute_group(Chunk& chunk, int64_t layer, StageActivations& saved, const SequenceContext& sequence) {
  for (int64_t i = chunk.recompute.group_begin(layer); i < layer; ++i) {
    saved.layers[static_cast<size_t>(i + 1)].input =
        chunk.layers[static_cast<size_t>(i)].forward(saved.layers[static_cast<size_t>(i)], sequence);
  }
  chunk.layers[static_cast<size_t>(layer)].refill(saved.layers[static_cast<size_t>(layer)], sequence);
}

core::Tensor GptStage::forward(int chunk, const Microbatch& microbatch, core::Tensor input, StageActivations& saved,
                               LossValue& loss, std::optional<double> loss_scale, const Leaving& leaving) {
  const bool forward_only = !loss_scale;
  const SequenceContext sequence = sequence_context(microbatch, /*training=*/!forward_only);
  core::Tensor hidden = is_first_chunk(chunk) ? embedding_->forward(microbatch, sequence.samples) : std::move(input);
  hidden = run_layers(chunks_[static_cast<size_t>(chunk)], std::move(hidden), saved, sequence,
                      forward_only ? nullptr : &leaving);
  if (!is_last_chunk(chunk)) return hidden;
  saved.loss.input = std::move(hidden);
  loss = loss_->forward(microbatch, saved.loss, loss_scale);
  return {};
}

void GptStage::recompute(int chunk, const Microbatch& microbatch, StageActivations& saved) {
  Chunk& own = chunks_[static_cast<size_t>(chunk)];
  const SequenceContext sequence = sequence_context(microbatch, /*training=*/true);
  for (int64_t i = 0; i < static_cast<int64_t>(own.layers.size()); ++i) {
    if (!saved.layers[static_cast<size_t>(i)].complete) recompute_group(own, i, saved, sequence);
  }
}

void GptStage::prepare_backward(StageActivations& saved) {
  if (swap_ == nullptr) return;
  swap_->settle();
  if (!saved.layers.empty()) swap_->prefetch(saved.layers.back());
}

void GptStage::settle_operands() {
  if (leaving_operands_ != nullptr) std::exchange(leaving_operands_, nullptr)->settle();
}

core::Tensor GptStage::backward(int chunk, const Microbatch& microbatch, core::Tensor dy, StageActivations& saved,
                                DeferredGradients deferred) {
  TensorSwap* const leave = deferred.leave ? operand_swap_ : nullptr;
  if (deferred.layers) saved.weights.defer(leave);
  if (leave != nullptr) leaving_operands_ = &saved.weights;
  if (deferred.output) output_weights_.defer();
  Chunk& own = chunks_[static_cast<size_t>(chunk)];
  const SequenceContext sequence = sequence_context(microbatch, /*training=*/true);
  core::Tensor gradient =
      is_last_chunk(chunk) ? loss_->backward(microbatch, saved.loss, output_weights_) : std::move(dy);
  for (int64_t i = static_cast<int64_t>(own.layers.size()) - 1; i >= 0; --i) {
    LayerActivations& kept = saved.layers[static_cast<size_t>(i)];
    if (swap_ != nullptr) {
      swap_->swap_in(kept);
      if (i > 0) swap_->prefetch(saved.layers[static_cast<size_t>(i - 1)]);
    }
    if (!kept.complete) recompute_group(own, i, saved, sequence);
    gradient = own.layers[static_cast<size_t>(i)].backward(std::move(gradient), kept, sequence, saved.weights);
    saved.weights.swap_out();
    state_.groups.world.endpoint().progress();
  }
  if (!is_first_chunk(chunk)) return gradient;
  embedding_->backward(microbatch, std::move(gradient), microbatch.samples);
  return {};
}

void GptStage::set_text_length(int64_t tokens) {
  const core::TransformerConfig& model = state_.config.model;
  if (rotary_frequencies_differ(model, text_length_, tokens)) {
    *rope_ = *make_rope_table(state_.ops.arena, model, positions(state_.config), tokens);  // the layers point to it
  }
  text_length_ = tokens;
}

core::Tensor GptStage::forward_hidden(int chunk, const Microbatch& microbatch, core::Tensor input) {
  StageActivations saved;
  return run_layers(chunks_[static_cast<size_t>(chunk)],
                    is_first_chunk(chunk) ? embedding_->forward(microbatch, {}) : std::move(input), saved,
                    sequence_context(microbatch, /*training=*/false), nullptr);
}

}  // namespace ms::train
