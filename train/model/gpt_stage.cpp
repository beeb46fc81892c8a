#include "train/model/gpt_stage.h"

#include "core/error.h"

namespace ms::train {

GptStage::GptStage(RankState& state, ParameterStore& parameters)
    : state_(state),
      rope_(state.ops.arena, state.config.model.max_position_embeddings, state.config.model.kv_channels,
            state.config.model.rotary_base),
      recompute_(state.config.training.recompute_granularity, state.config.training.recompute_method,
                 state.config.training.recompute_num_layers, state.config.model.num_layers / state.groups.grid.pp) {
  const int64_t layers = state.config.model.num_layers / state.groups.grid.pp;
  if (state.groups.is_first_stage()) embedding_.emplace(state, parameters);
  layers_.reserve(static_cast<size_t>(layers));
  for (int64_t layer = 0; layer < layers; ++layer) {
    layers_.emplace_back(state, parameters, rope_, state.groups.at.pp * layers + layer);
  }
  if (state.groups.is_last_stage()) loss_.emplace(state, parameters);
}

core::Dims GptStage::hidden_shape(int64_t batch, int64_t seq) const {
  return {state_.sequence_parallel() ? seq / state_.tp_size() : seq, batch, state_.config.model.hidden_size};
}

core::Tensor GptStage::run_layers(core::Tensor hidden, StageActivations& saved, bool forward_only) {
  saved.layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    LayerActivations& kept = saved.layers[i];
    kept.input = std::move(hidden);
    hidden = layers_[i].forward(kept);
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

void GptStage::recompute_group(int64_t layer, StageActivations& saved) {
  for (int64_t i = recompute_.group_begin(layer); i < recompute_.group_end(layer); ++i) {
    core::Tensor output = layers_[static_cast<size_t>(i)].forward(saved.layers[static_cast<size_t>(i)]);
    if (i + 1 < recompute_.group_end(layer)) saved.layers[static_cast<size_t>(i + 1)].input = std::move(output);
  }
}

core::Tensor GptStage::forward(const Microbatch& microbatch, core::Tensor input, StageActivations& saved,
                               LossValue& loss, bool forward_only) {
  core::Tensor hidden = embedding_ ? embedding_->forward(microbatch) : std::move(input);
  hidden = run_layers(std::move(hidden), saved, forward_only);
  if (!loss_) return hidden;
  saved.loss.input = std::move(hidden);
  loss = loss_->forward(microbatch, saved.loss, forward_only);
  return {};
}

core::Tensor GptStage::backward(const Microbatch& microbatch, core::Tensor dy, StageActivations& saved,
                                double loss_scale) {
  core::Tensor gradient = loss_ ? loss_->backward(microbatch, saved.loss, loss_scale) : std::move(dy);
  for (int64_t i = static_cast<int64_t>(layers_.size()) - 1; i >= 0; --i) {
    LayerActivations& kept = saved.layers[static_cast<size_t>(i)];
    if (!kept.complete) recompute_group(i, saved);
    gradient = layers_[static_cast<size_t>(i)].backward(gradient, kept);
  }
  if (!embedding_) return gradient;
  embedding_->backward(microbatch, gradient);
  return {};
}

core::Tensor GptStage::forward_hidden(const Microbatch& microbatch, core::Tensor input) {
  StageActivations saved;
  return run_layers(embedding_ ? embedding_->forward(microbatch) : std::move(input), saved, /*forward_only=*/true);
}

}  // namespace ms::train
