#include "train/model/multi_token_prediction.h"

#include <utility>

#include "train/ops/column_parts.h"
#include "train/ops/elementwise.h"
#include "train/ops/latent_attention.h"

namespace ms::train {
namespace {

std::string mtp_name(int64_t k, const char* part) { return core::cat("mtp.layers.", k, ".", part); }

Norm mtp_norm(RankState& state, ParameterStore& parameters, int64_t k, const char* name) {
  return {state, parameters, mtp_name(k, name) + ".weight", mtp_name(k, name) + ".bias"};
}

}  // namespace

MultiTokenPrediction::Layer::Layer(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t k)
    : embedding(state, parameters, mtp_name(k, "embedding"), /*reads_behind=*/true),
      enorm(mtp_norm(state, parameters, k, "enorm")),
      hnorm(mtp_norm(state, parameters, k, "hnorm")),
      eh_proj(state, parameters, mtp_name(k, "eh_proj")),
      layer(state, parameters, rope, state.config.model.num_layers + k),
      final_norm(mtp_norm(state, parameters, k, "final_layernorm")) {}

MultiTokenPrediction::MultiTokenPrediction(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope)
    : state_(state) {
  layers_.reserve(static_cast<size_t>(state.config.model.mtp_num_layers));
  for (int64_t k = 0; k < state.config.model.mtp_num_layers; ++k) layers_.emplace_back(state, parameters, rope, k);
}

core::Tensor MultiTokenPrediction::project(Layer& layer, const core::TensorView& pair) {
  core::Tensor part = layer.eh_proj.forward(pair);
  if (state_.tp_size() == 1) return part;
  core::Tensor parts(state_.ops.arena, part.dtype(), {state_.tp_size(), part.dim(0), part.dim(1), part.dim(2)},
                     core::MemoryTag::kAct);
  state_.groups.tp.allgather(part, parts);
  part.reset();
  const int64_t positions = pair.dim(0);
  return ops::join_parts(state_.ops, parts, state_.sequence_parallel() ? state_.tp_rank() * positions : 0, positions);
}

core::Tensor MultiTokenPrediction::project_backward(Layer& layer, core::Tensor dy, core::Tensor pair,
                                                    WeightGradients& weights) {
  if (state_.tp_size() > 1) {
    core::Tensor gathered;
    const core::TensorView full = enter_column_parallel(state_, dy, gathered);
    core::Tensor part = ops::part_of_columns(state_.ops, full, state_.tp_rank(), state_.tp_size());
    gathered.reset();
    dy = std::move(part);
  }
  return layer.eh_proj.backward(std::move(dy), std::move(pair), weights);
}

void MultiTokenPrediction::forward(const Microbatch& microbatch, LossHead& head, const core::TensorView& normed,
                                   double scale, const SequenceContext& sequence, const layout::LayerSlots& slots,
                                   std::vector<MtpActivations>& saved) {
  const TrainingConfig& config = state_.config.training;
  const auto layers = static_cast<double>(layers_.size());
  const double of_all = scale * microbatch.loss_tokens() * config.mtp_loss_scaling_factor / layers;
  const int64_t positions = config.loss_chunk_size > 0        ? config.loss_chunk_size
                            : config.mtp_mem_efficient_logits ? microbatch.seq
                                                              : 0;
  saved.resize(layers_.size());
  for (size_t k = 0; k < layers_.size(); ++k) {
    Layer& layer = layers_[k];
    MtpActivations& own = saved[k];
    if (microbatch.ahead.empty()) {
      roll(k == 0 ? microbatch : saved[k - 1].rolled, own.rolled);
    } else {
      own.rolled = microbatch.ahead[k];
    }
    own.embedded = layer.embedding.forward(own.rolled, sequence.samples);
    {
      const core::Tensor of_tokens = layer.enorm.forward(own.embedded, own.enorm);
      const core::Tensor of_hidden = layer.hnorm.forward(k == 0 ? normed : saved[k - 1].loss.normed.view(), own.hnorm);
      own.pair = ops::join_columns(state_.ops, of_tokens, of_hidden);
    }
    own.layer.input = project(layer, own.pair);
    own.layer.slots = slots;
    own.loss.input = layer.layer.forward(own.layer, sequence);
    if (slots.runs_again()) own.layer.drop();
    own.loss.normed = layer.final_norm.forward(own.loss.input, own.loss.norm);
    const double tokens = own.rolled.loss_tokens();
    own.value = head.forward_normed(own.rolled, own.loss, tokens > 0 ? of_all / tokens : 0.0,
                                    {.positions = positions, .normed_stays = k + 1 < layers_.size()});
    state_.groups.world.endpoint().progress();
  }
}

core::Tensor MultiTokenPrediction::backward(LossHead& head, LossActivations& main, const SequenceContext& sequence,
                                            WeightGradients& weights, std::vector<MtpActivations>& saved) {
  ops::Context& ops = state_.ops;
  core::Tensor behind;  // gradient of what the norm before gave, from the layer behind it
  for (size_t k = layers_.size(); k-- > 0;) {
    Layer& layer = layers_[k];
    MtpActivations& own = saved[k];
    core::Tensor gradient = head.backward_normed(own.rolled, own.loss, weights);
    if (behind.defined()) ops::add_inplace(ops, gradient, behind);
    behind.reset();
    gradient = layer.final_norm.backward(gradient, own.loss.input, own.loss.norm);
    own.loss.drop();
    if (!own.layer.complete) layer.layer.refill(own.layer, sequence);
    gradient = layer.layer.backward(std::move(gradient), own.layer, sequence, weights);
    gradient = project_backward(layer, std::move(gradient), std::move(own.pair), weights);
    auto [of_tokens, of_hidden] = ops::split_columns(ops, gradient, gradient.dim(-1) / 2);
    gradient.reset();
    core::Tensor embedded = layer.enorm.backward(of_tokens, own.embedded, own.enorm);
    of_tokens.reset();
    own.embedded.reset();
    own.enorm = {};
    layer.embedding.backward(own.rolled, std::move(embedded), sequence.samples);
    LossActivations& before = k == 0 ? main : saved[k - 1].loss;
    behind = layer.hnorm.backward(of_hidden, before.normed, own.hnorm);
    of_hidden.reset();
    own.hnorm = {};
    if (!before.logits.defined()) before.normed.reset();
    state_.groups.world.endpoint().progress();
  }
  return behind;
}

}  // namespace ms::train
