#include "train/model/embedding.h"

#include <algorithm>
#include <cmath>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "train/model/tensor_recorder.h"
#include "train/ops/elementwise.h"
#include "train/ops/embedding.h"
#include "train/parallel/mappings.h"

namespace ms::train {

int64_t first_vocab_id(const RankState& state, const Parameter& weight) {
  return state.tp_rank() * weight.weight.dim(0);
}

int64_t valid_vocab_rows(const RankState& state, const Parameter& weight) {
  return std::clamp<int64_t>(state.config.model.vocab_size - first_vocab_id(state, weight), 0, weight.weight.dim(0));
}

Embedding::Embedding(RankState& state, ParameterStore& parameters, std::string_view place, bool reads_behind)
    : state_(state),
      weight_(parameters.at("embedding.word_embeddings.weight")),
      positions_(parameters.find("embedding.position_embeddings.weight")),
      dropout_(state, place),
      multiplier_(static_cast<float>(state.config.model.embedding_multiplier)) {
  const bool is_read_behind = weight_.spec.has_copy_behind && layout::stage_of_loss(state.layout()) == 0;
  if (weight_.trains() && is_read_behind && !reads_behind) {
    const TrainingConfig& training = state.config.training;
    const int64_t rows = weight_.weight.dim(0);
    const bool chooses = state.groups.grid.chooses_cp;  // then it is not known how many tokens a rank has
    sparse_grad_.emplace(rows, weight_.weight.dim(1),
                         chooses ? rows
                                 : state.config.num_microbatches(state.groups.grid.dp) * training.micro_batch_size *
                                       training.seq_length / state.groups.grid.cp);
  }
  if (!state.config.model.input_embeds_norm) return;
  // transformers rounds this factor, which is a tensor there, to the model's dtype.
  multiplier_ *= static_cast<float>(std::sqrt(static_cast<double>(state.config.model.hidden_size)));
  const core::DType dtype = state.config.params_dtype();
  if (dtype == core::DType::kBf16) multiplier_ = kernels::to_float(kernels::bf16(multiplier_));
  if (dtype == core::DType::kFp16) multiplier_ = kernels::to_float(kernels::fp16(multiplier_));
}

int64_t Embedding::first_position(const core::TensorView& hidden) const {
  return state_.sequence_parallel() ? state_.tp_rank() * hidden.dim(0) : 0;
}

std::span<const int32_t> Embedding::positions_of(const core::TensorView& hidden, const Microbatch& microbatch) const {
  const std::span<const int32_t> all = microbatch.positions.empty() ? microbatch.row_positions : microbatch.positions;
  if (all.empty()) return all;
  return all.subspan(static_cast<size_t>(first_position(hidden) * hidden.dim(1)),
                     static_cast<size_t>(hidden.dim(0) * hidden.dim(1)));
}

core::Tensor Embedding::forward(const Microbatch& microbatch, std::span<const int64_t> samples) {
  core::Tensor hidden = ops::embedding(state_.ops, microbatch.tokens, weight_.weight, first_vocab_id(state_, weight_));
  hidden.reshape({microbatch.seq, microbatch.batch, state_.config.model.hidden_size});
  hidden = leave_row_parallel(state_, std::move(hidden));
  if (multiplier_ != 1.0F) ops::scale_inplace(state_.ops, hidden, multiplier_);
  if (const auto positions = positions_of(hidden, microbatch); positions_ != nullptr && !positions.empty()) {
    ops::add_position_embedding(state_.ops, hidden, positions_->weight, positions);
  } else if (positions_ != nullptr) {
    ops::add_position_embedding(state_.ops, hidden, positions_->weight, first_position(hidden));
  }
  dropout_.apply(hidden, {.samples = samples, .share = microbatch.share});
  if (state_.tensors != nullptr) state_.tensors->perturb(hidden);
  record_output(state_, "embedding", "", hidden, TensorRecorder::Split::kRows);
  return hidden;
}

void Embedding::backward(const Microbatch& microbatch, core::Tensor dhidden, std::span<const int64_t> samples) {
  record_gradient(state_, "embedding", "", dhidden, TensorRecorder::Split::kRows);
  dropout_.apply(dhidden, {.samples = samples, .share = microbatch.share});
  const bool trains_positions = positions_ != nullptr && positions_->trains();
  if (const auto positions = positions_of(dhidden, microbatch); trains_positions && !positions.empty()) {
    ops::embedding_backward(state_.ops, positions,
                            dhidden.view().reshaped({dhidden.dim(0) * dhidden.dim(1), dhidden.dim(2)}),
                            positions_->main_grad, /*first_id=*/0);
  } else if (trains_positions) {
    ops::position_embedding_backward(state_.ops, dhidden, positions_->main_grad, first_position(dhidden));
  }
  if (!weight_.trains()) return;
  if (multiplier_ != 1.0F) ops::scale_inplace(state_.ops, dhidden, multiplier_);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, dhidden, gathered);
  const core::TensorView rows = full.reshaped({microbatch.seq * microbatch.batch, state_.config.model.hidden_size});
  if (sparse_grad_) {
    sparse_grad_->add(state_.ops, microbatch.tokens, rows, first_vocab_id(state_, weight_));
  } else {
    ops::embedding_backward(state_.ops, microbatch.tokens, rows, weight_.main_grad, first_vocab_id(state_, weight_));
  }
}

void Embedding::fold_tied_gradient() {
  if (sparse_grad_) sparse_grad_->fold(state_.ops, weight_.main_grad);
}

}  // namespace ms::train
