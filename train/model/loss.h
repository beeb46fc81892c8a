// The end of the last stage: final norm, output layer and vocabulary-parallel cross entropy
// (megatron/core/tensor_parallel/cross_entropy.py). Logits are not gathered: only the row maximum, the sum of
// exponentials and the target logit are reduced over TP. Vocabulary padding is left out of the softmax, so the loss
// does not depend on it.
//
// With --loss-chunk-size the sequence is processed in chunks, forward and backward of each at once (MindSpeed's
// ChunkLoss): only one chunk's logits exist at a time, and what is kept for backward is the gradient of the normed
// hidden states.
#pragma once

#include <optional>
#include <vector>

#include "train/data/sampler.h"
#include "train/model/linear.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/rank_state.h"

namespace ms::train {

// What the losses of a micro-batch's rows [seq * batch] are made of, besides its labels and mask.
struct LossRows {
  std::vector<float> grad_scale;    // of each row's loss, in backward
  std::vector<float> max, sum_exp;  // of the logits, over the whole vocabulary
  std::vector<float> target;        // logit of the label
};

struct LossActivations {
  core::Tensor input;  // [seq', batch, hidden]
  core::Tensor normed;
  ops::NormStatistics norm;
  core::Tensor logits;   // in one piece: fp32 [seq * batch, vocab / tp], soft-capped
  core::Tensor dnormed;  // in chunks: [seq * batch, hidden], not yet summed over TP; in the memory of what the output
                         // layer read
  LossRows rows;

  // The tensors; rows keep their room for the next step.
  void drop();
};

struct LossValue {
  double sum = 0;     // of the unmasked tokens' losses, nats
  double tokens = 0;  // unmasked tokens
  double mean() const { return tokens > 0 ? sum / tokens : 0.0; }
};

class LossHead {
 public:
  // How a loss is computed.
  struct Way {
    int64_t positions = 0;      // whose logits exist at once, and become their gradient at once; 0: all, in backward
    bool normed_stays = false;  // in saved.normed, also with positions: something else reads it
  };
  LossHead(RankState& state, ParameterStore& parameters);

  // saved.input -> loss. scale: of the unmasked losses' sum, whose gradient backward will be asked for; none:
  // evaluation, nothing is kept.
  LossValue forward(const Microbatch& microbatch, LossActivations& saved, std::optional<double> scale) {
    normalize(saved);
    return forward_output(microbatch, saved, scale, /*normed_stays=*/false);
  }
  // Its two halves: up to saved.normed, which others may read in between, and the rest.
  void normalize(LossActivations& saved) { saved.normed = norm_.forward(saved.input, saved.norm); }
  LossValue forward_output(const Microbatch& microbatch, LossActivations& saved, std::optional<double> scale,
                           bool normed_stays);
  // The gradient with respect to saved.input. Empties `saved`. The output layer's gradient goes to `weights`; with
  // chunks it has been added in forward. more: a gradient of saved.normed from elsewhere; undefined: none.
  core::Tensor backward(const Microbatch& microbatch, LossActivations& saved, WeightGradients& weights,
                        core::Tensor more = {});

  // Both behind another norm than the model's: from saved.normed, and the gradient with respect to it, which leaves
  // what the norm's backward reads.
  LossValue forward_normed(const Microbatch& microbatch, LossActivations& saved, std::optional<double> scale, Way way);
  core::Tensor backward_normed(const Microbatch& microbatch, LossActivations& saved, WeightGradients& weights);

  // Logits of the last position of a batch of one, gathered over TP: true vocabulary, fp32. hidden as saved.input.
  std::vector<float> last_logits(const core::TensorView& hidden, int64_t position);

 private:
  // fp32 logits of rows [n, hidden]: this rank's slice of the vocabulary, soft-capped.
  core::Tensor logits_of(const core::TensorView& rows);
  // logits: of the rows from `begin` on. Fills their max, sum_exp and target, adds their losses.
  void add_losses(const Microbatch& microbatch, const core::TensorView& logits, int64_t begin, LossRows& rows,
                  LossValue& loss);
  // The same rows. -> the gradient of the logits that the output layer gave, [n, vocab / tp], in compute dtype.
  core::Tensor logits_backward(const Microbatch& microbatch, const LossRows& rows, int64_t begin, core::Tensor logits);

  RankState& state_;
  Norm norm_;
  ColumnParallelLinear output_;
};

}  // namespace ms::train
