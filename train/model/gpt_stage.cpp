#include "train/model/gpt_stage.h"

#include <utility>

#include "core/error.h"
#include "core/layout/model_layout.h"
#include "train/model/routing_statistics.h"

namespace ms::train {
namespace {

int ranks_of_experts(const RankState& state) { return state.groups.grid.ep * state.groups.grid.etp; }

}  // namespace

GptStage::GptStage(RankState& state, ParameterStore& parameters)
    : state_(state),
      placement_(layout::placement_of(state.config.model, state.layout())),
      tokens_travel_(ranks_of_experts(state) > 1),
      rope_(state.ops.arena, state.config, state.groups.at.cp) {
  for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
    if (is_first_chunk(chunk)) embedding_.emplace(state, parameters);
    if (is_last_chunk(chunk)) loss_.emplace(state, parameters);
    if (is_last_chunk(chunk) && state.config.model.mtp_num_layers > 0)
      mtp_.emplace(state, parameters, rope_.of_layer(state.config.model.num_layers));
    const layout::LayerRange range = placement_.layers(place(chunk));
    std::vector<TransformerLayer>& layers = chunks_.emplace_back(Chunk{range.first, {}, {}, {}}).layers;
    layers.reserve(static_cast<size_t>(range.count));
    for (int64_t layer = range.first; layer < range.first + range.count; ++layer)
      layers.emplace_back(state, parameters, rope_.of_layer(layer), layer);
    const int ep = ranks_of_experts(state);
    chunks_.back().forward = layout::chunk_steps(state.config.model, range, state.tp_size(), ep);
    chunks_.back().backward = layout::backward_chunk_steps(state.config.model, range, state.tp_size(), ep);
  }
}

std::vector<layout::PairStep> GptStage::pair_steps(int forward_chunk, int backward_chunk) const {
  return layout::pair_steps(state_.config.model, placement_, state_.tp_size(), place(forward_chunk),
                            place(backward_chunk), ranks_of_experts(state_));
}

core::Dims GptStage::hidden_shape(int64_t batch, int64_t seq) const {
  return {state_.sequence_parallel() ? seq / state_.tp_size() : seq, batch, state_.config.model.hidden_size};
}

size_t GptStage::first_of_group(size_t layer, const StageActivations& saved) {
  if (saved.layers[layer].complete) return layer;
  while (!saved.layers[layer].input.defined()) --layer;
  return layer;
}

void GptStage::recompute_group(Chunk& chunk, int64_t layer, StageActivations& saved, const SequenceContext& sequence,
                               int64_t next) {
  size_t at = first_of_group(static_cast<size_t>(layer), saved);
  // Routers of layers that run again have been traced.
  RoutingTrace* const trace = state_.routing != nullptr ? state_.routing->trace() : nullptr;
  if (trace != nullptr) state_.routing->set_trace(nullptr);
  for (; at < static_cast<size_t>(layer); ++at) {
    const int64_t unit = chunk.first_layer + static_cast<int64_t>(at);
    acquire_weights(unit, unit + 1);
    saved.layers[at + 1].input = chunk.layers[at].forward(saved.layers[at], sequence);
    release_weights(unit);
  }
  if (trace != nullptr) state_.routing->set_trace(trace);
  acquire_weights(chunk.first_layer + layer, next);
  chunk.layers[at].refill(saved.layers[at], sequence);
}

void GptStage::acquire_output_weights(int64_t next) {
  acquire_weights(after_layers(), words_are_read_behind() ? layout::kWordsUnit : next);
  if (words_are_read_behind()) acquire_weights(layout::kWordsUnit, next);
}

void GptStage::release_output_weights() {
  release_weights(after_layers());
  if (words_are_read_behind()) release_weights(layout::kWordsUnit);
}

void GptStage::recompute(int chunk, const Microbatch& microbatch, StageActivations& saved) {
  Chunk& own = chunks_[static_cast<size_t>(chunk)];
  const SequenceContext sequence = sequence_context(microbatch, /*training=*/true);
  for (int64_t i = 0; i < static_cast<int64_t>(own.layers.size()); ++i) {
    if (saved.layers[static_cast<size_t>(i)].complete) continue;
    recompute_group(own, i, saved, sequence, ParameterObserver::kNone);
    release_weights(own.first_layer + i);
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

void GptStage::backward_weight(int chunk, StageActivations& saved, layout::FinalGradients leaves) {
  saved.weights.run(observer_, leaves.layers);
  if (!leaves.layers) return;
  const Chunk& own = chunk_at(chunk);  // layers without operands here, too
  for (size_t i = own.layers.size(); i-- > 0;) announce_final(own.first_layer + static_cast<int64_t>(i));
}

void GptStage::fold_tied_gradient() {
  if (!embedding_ || embedding_->adds_words_to_main_grad()) return;
  acquire_gradients(layout::kWordsUnit);
  embedding_->fold_tied_gradient();
  announce_added(layout::kWordsUnit);
}

void GptStage::set_text_length(int64_t tokens) { rope_.set_text_length(tokens); }

core::Tensor GptStage::forward_hidden(int chunk, const Microbatch& microbatch, core::Tensor input) {
  StageActivations saved;
  if (is_last_chunk(chunk)) acquire_output_weights();
  Forward forward(*this, chunk, microbatch, std::move(input), saved, std::nullopt);
  for (const layout::ChunkStep& step : forward_steps(chunk)) {
    if (step.step != layout::SubStep::kResult) forward.run(step);
  }
  return forward.finish_layers();
}

}  // namespace ms::train
