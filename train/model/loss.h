// The last stage's end: final norm, output layer and vocabulary-parallel cross entropy, without gathering logits
// (megatron/core/tensor_parallel/cross_entropy.py): over TP only the row maximum, the sum of exponentials and the
// target logit are reduced. Vocabulary padding is left out of the softmax, so the loss does not depend on it.
#pragma once

#include "train/data/sampler.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

struct LossActivations {
  core::Tensor input;  // [seq', batch, hidden]
  core::Tensor normed;
  ops::NormStatistics norm;
  core::Tensor logits;              // fp32 [seq * batch, vocab / tp], soft-capped
  std::vector<float> max, sum_exp;  // of each row, over the whole vocabulary
};

struct LossValue {
  double sum = 0;     // of the unmasked tokens' losses, nats
  double tokens = 0;  // unmasked tokens
};

class LossHead {
 public:
  LossHead(RankState& state, ParameterStore& parameters);

  // saved.input -> loss. Fills the rest of `saved` unless `forward_only`.
  LossValue forward(const Microbatch& microbatch, LossActivations& saved, bool forward_only);
  // Gradient of scale * (sum of unmasked losses) with respect to saved.input. Destroys saved.logits.
  core::Tensor backward(const Microbatch& microbatch, LossActivations& saved, double scale);

  // Logits of the last position of a batch of one, gathered over TP: true vocabulary, fp32. hidden as saved.input.
  std::vector<float> last_logits(const core::TensorView& hidden, int64_t position);

  // Adds the gradient that the output layer collected apart to a tied embedding's main_grad (G4: two accumulators).
  void fold_tied_gradient();

 private:
  // fp32 logits of rows [n, hidden]: this rank's slice of the vocabulary, soft-capped.
  core::Tensor logits_of(const core::TensorView& rows);

  RankState& state_;
  Norm norm_;
  Parameter& weight_;
  core::Tensor tied_grad_;  // with a tied weight on one stage: the output layer's own accumulator
};

}  // namespace ms::train
