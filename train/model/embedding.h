// Vocabulary-parallel embedding: each TP rank looks up the tokens of its rows, and the sum over TP is the embedding
// (megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding); then learned positions and dropout
// (megatron/core/models/common/embeddings/language_model_embedding.py).
#pragma once

#include <optional>
#include <span>
#include <string_view>

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

class Embedding {
 public:
  // place: for dropout. reads_behind: it is what multi-token prediction reads behind the layers, whose gradients come
  // with those of the output layer.
  Embedding(RankState& state, ParameterStore& parameters, std::string_view place = "embedding",
            bool reads_behind = false);

  // -> hidden [seq', batch, hidden], compute dtype; seq' = seq / tp with sequence parallelism.
  // samples: for dropout, as in TransformerLayer.
  core::Tensor forward(const Microbatch& microbatch, std::span<const int64_t> samples);
  // dhidden: gradient of the result; overwritten. Adds to the weights' main_grad.
  void backward(const Microbatch& microbatch, core::Tensor dhidden, std::span<const int64_t> samples);
  // Whether backward adds to the main_grad of the word embeddings; false: it collects what fold_tied_gradient adds.
  bool adds_words_to_main_grad() const { return !sparse_grad_; }
  // After the last backward of a step: adds what was collected apart to main_grad.
  void fold_tied_gradient();

 private:
  int64_t first_position(const core::TensorView& hidden) const;
  // Those of hidden's rows, if they are not the rows' numbers.
  std::span<const int32_t> positions_of(const core::TensorView& hidden, const Microbatch& microbatch) const;

  RankState& state_;
  Parameter& weight_;
  Parameter* positions_;  // null: the model has no learned positions
  HiddenDropout dropout_;
  float multiplier_;  // of the word embeddings
  // With a weight that what is behind the layers reads too, on this stage: that adds to main_grad, this here (G4: two
  // accumulators).
  std::optional<SparseRowGrad> sparse_grad_;
};

}  // namespace ms::train
