// Vocabulary-parallel embedding: each TP rank looks up the tokens of its rows, and the sum over TP is the embedding
// (megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding); then learned positions and dropout
// (megatron/core/models/common/embeddings/language_model_embedding.py).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "train/data/sampler.h"
#include "train/model/dropout.h"
#include "train/model/parameters.h"
#include "train/model/sparse_row_grad.h"
#include "train/rank_state.h"

namespace ms::train {

// First token id of this TP rank's rows of a vocabulary parameter.
int64_t first_vocab_id(const RankState& state, const Parameter& weight);
// How many of this rank's rows are of the true vocabulary; the rest is padding.
int64_t valid_vocab_rows(const RankState& state, const Parameter& weight);

// What each token has, sequence-major: [batch, seq] -> [seq * batch], the order of hidden's rows. of_tokens keeps its
// room.
template <class T>
void to_sequence_major(const std::vector<T>& batch_major, int64_t batch, int64_t seq, std::vector<T>& of_tokens) {
  of_tokens.resize(batch_major.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < seq; ++s) {
      of_tokens[static_cast<size_t>(s * batch + b)] = batch_major[static_cast<size_t>(b * seq + s)];
    }
  }
}

class Embedding {
 public:
  Embedding(RankState& state, ParameterStore& parameters);

  // -> hidden [seq', batch, hidden], compute dtype; seq' = seq / tp with sequence parallelism.
  // samples: for dropout, as in TransformerLayer.
  core::Tensor forward(const Microbatch& microbatch, std::span<const int64_t> samples);
  // dhidden: gradient of the result; overwritten. Adds to the weights' main_grad.
  void backward(const Microbatch& microbatch, core::Tensor dhidden, std::span<const int64_t> samples);
  // After the last backward of a step: adds what a tied embedding has collected apart to its main_grad.
  void fold_tied_gradient();

 private:
  int64_t first_position(const core::TensorView& hidden) const;
  // In the order of hidden's rows; until the next call.
  std::span<const int32_t> ids_of(const Microbatch& microbatch);

  RankState& state_;
  Parameter& weight_;
  Parameter* positions_;  // null: the model has no learned positions
  HiddenDropout dropout_;
  float multiplier_;  // of the word embeddings
  std::vector<int32_t> ids_;
  // With a tied weight whose output layer is on this stage too: the layer adds to main_grad, this here (G4: two
  // accumulators).
  std::optional<SparseRowGrad> sparse_grad_;
};

}  // namespace ms::train
