#include "train/model/gpt_stage.h"

#include "core/error.h"
#include "core/layout/model_layout.h"
#include "core/layout/placement.h"

namespace ms::train {
namespace {

// Generated text may grow as long as the model can read; a training step sees --seq-length.
int64_t positions(const TrainerConfig& config) {
  return config.generate.generate.empty() ? config.training.seq_length : config.model.max_position_embeddings;
}

}  // namespace

GptStage::GptStage(RankState& state, ParameterStore& parameters)
    : state_(state),
      rope_(make_rope_table(state.ops.arena, state.config.model, positions(state.config), positions(state.config))),
      text_length_(positions(state.config)),
      recompute_(state.config.recompute_plan()) {
  const layout::ModelLayout layout = state.layout();
  if (state.groups.is_first_stage()) embedding_.emplace(state, parameters);
  for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
    const layout::LayerRange range = layout::layers_of_chunk(state.config.model, layout, state.groups.at.pp, chunk);
    Chunk& layers = chunks_.emplace_back();
    layers.reserve(static_cast<size_t>(range.count));
    for (int64_t layer = range.first; layer < range.first + range.count; ++layer) {
      layers.emplace_back(state, parameters, rope_ ? &*rope_ : nullptr, layer,
                          recompute_.recomputed_outputs(layer - range.first));
    }
  }
  if (state.groups.is_last_stage()) loss_.emplace(state, parameters);
}

core::Dims GptStage::hidden_shape(int64_t batch, int64_t seq) const {
  return {state_.sequence_parallel() ? seq / state_.tp_size() : seq, batch, state_.config.model.hidden_size};
}

core::Tensor GptStage::run_layers(Chunk& layers, core::Tensor hidden, StageActivations& saved,
                                  std::span<const int64_t> samples, bool forward_only) {
  saved.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerActivations& kept = saved.layers[i];
    kept.input = std::move(hidden);
    hidden = layers[i].forward(kept, samples);
    state_.groups.world.endpoint().progress();
    const auto layer = static_cast<int64_t>(i);
    if (forward_only) {
      kept = {};
    } else if (recompute_.recomputes(layer)) {
      kept.drop();
      if (recompute_.group_begin(layer) != layer) kept.input.reset();
    }
  }
  return hidden;
}

void GptStage::recompute_group(Chunk& layers, int64_t layer, StageActivations& saved,
                               std::span<const int64_t> samples) {
  for (int64_t i = recompute_.group_begin(layer); i < layer; ++i) {
    saved.layers[static_cast<size_t>(i + 1)].input =
        layers[static_cast<size_t>(i)].forward(saved.layers[static_cast<size_t>(i)], samples);
  }
  layers[static_cast<size_t>(layer)].refill(saved.layers[static_cast<size_t>(layer)], samples);
}

core::Tensor GptStage::forward(int chunk, const Microbatch& microbatch, core::Tensor input, StageActivations& saved,
                               LossValue& loss, std::optional<double> loss_scale) {
  const bool forward_only = !loss_scale;
  const std::span<const int64_t> samples = forward_only ? std::span<const int64_t>() : microbatch.samples;
  core::Tensor hidden = is_first_chunk(chunk) ? embedding_->forward(microbatch, samples) : std::move(input);
  hidden = run_layers(chunks_[static_cast<size_t>(chunk)], std::move(hidden), saved, samples, forward_only);
  if (!is_last_chunk(chunk)) return hidden;
  saved.loss.input = std::move(hidden);
  loss = loss_->forward(microbatch, saved.loss, loss_scale);
  return {};
}

core::Tensor GptStage::backward(int chunk, const Microbatch& microbatch, core::Tensor dy, StageActivations& saved) {
  Chunk& layers = chunks_[static_cast<size_t>(chunk)];
  core::Tensor gradient = is_last_chunk(chunk) ? loss_->backward(microbatch, saved.loss) : std::move(dy);
  for (int64_t i = static_cast<int64_t>(layers.size()) - 1; i >= 0; --i) {
    LayerActivations& kept = saved.layers[static_cast<size_t>(i)];
    if (!kept.complete) recompute_group(layers, i, saved, microbatch.samples);
    gradient = layers[static_cast<size_t>(i)].backward(gradient, kept, microbatch.samples);
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
                    is_first_chunk(chunk) ? embedding_->forward(microbatch, {}) : std::move(input), saved, {},
                    /*forward_only=*/true);
}

}  // namespace ms::train
