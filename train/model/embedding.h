// Vocabulary-parallel embedding: each TP rank looks up its rows, the sum over TP is the embedding
// (megatron/core/tensor_parallel/layers.py, VocabParallelEmbedding).
#pragma once

#include "train/data/sampler.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

// First token id of this TP rank's rows of a vocabulary parameter.
int64_t first_vocab_id(const RankState& state, const Parameter& weight);
// How many of this rank's rows are of the true vocabulary; the rest is padding.
int64_t valid_vocab_rows(const RankState& state, const Parameter& weight);

// Token ids sequence-major: [batch, seq] -> [seq * batch], the order of hidden's rows.
std::vector<int32_t> sequence_major(const std::vector<int32_t>& batch_major, int64_t batch, int64_t seq);

class Embedding {
 public:
  Embedding(RankState& state, ParameterStore& parameters);

  // -> hidden [seq', batch, hidden], compute dtype; seq' = seq / tp with sequence parallelism.
  core::Tensor forward(const Microbatch& microbatch);
  // dhidden: gradient of the result. Adds to the weight's main_grad.
  void backward(const Microbatch& microbatch, const core::TensorView& dhidden);

 private:
  RankState& state_;
  Parameter& weight_;
};

}  // namespace ms::train
