#include "train/model/embedding.h"

#include <algorithm>

#include "train/ops/embedding.h"
#include "train/parallel/mappings.h"

namespace ms::train {

int64_t first_vocab_id(const RankState& state, const Parameter& weight) {
  return state.tp_rank() * weight.weight.dim(0);
}

int64_t valid_vocab_rows(const RankState& state, const Parameter& weight) {
  return std::clamp<int64_t>(state.config.model.vocab_size - first_vocab_id(state, weight), 0, weight.weight.dim(0));
}

std::vector<int32_t> sequence_major(const std::vector<int32_t>& batch_major, int64_t batch, int64_t seq) {
  std::vector<int32_t> ids(batch_major.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < seq; ++s)
      ids[static_cast<size_t>(s * batch + b)] = batch_major[static_cast<size_t>(b * seq + s)];
  }
  return ids;
}

Embedding::Embedding(RankState& state, ParameterStore& parameters)
    : state_(state), weight_(parameters.at("embedding.word_embeddings.weight")) {}

core::Tensor Embedding::forward(const Microbatch& microbatch) {
  const std::vector<int32_t> ids = sequence_major(microbatch.tokens, microbatch.batch, microbatch.seq);
  core::Tensor hidden = ops::embedding(state_.ops, ids, weight_.weight, first_vocab_id(state_, weight_));
  hidden.reshape({microbatch.seq, microbatch.batch, state_.config.model.hidden_size});
  return leave_row_parallel(state_, std::move(hidden));
}

void Embedding::backward(const Microbatch& microbatch, const core::TensorView& dhidden) {
  const std::vector<int32_t> ids = sequence_major(microbatch.tokens, microbatch.batch, microbatch.seq);
  core::Tensor gathered;
  const core::TensorView full = enter_column_parallel(state_, dhidden, gathered);
  ops::embedding_backward(state_.ops, ids,
                          full.reshaped({microbatch.seq * microbatch.batch, state_.config.model.hidden_size}),
                          weight_.main_grad, first_vocab_id(state_, weight_));
}

}  // namespace ms::train
