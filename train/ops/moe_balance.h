// Losses that keep the load of experts even, and their gradients in the router's logits
// (megatron/core/transformer/moe/moe_utils.py: switch_load_balancing_loss_func, z_loss_func,
// compute_routing_scores_for_aux_loss; router.py: _apply_aux_loss, _apply_seq_aux_loss).
//
// Of T tokens, E experts and the scores q [T, E] of the router (a softmax over all experts, or scores one by one
// divided by their sum), with n_e tokens whose k highest scores have expert e:
//   auxiliary loss  E / (k T^2) sum_e n_e sum_t q_te   (Switch Transformer, arXiv 2101.03961)
//   z loss          mean_t (log sum_e exp(logit_te))^2 (ST-MoE, arXiv 2202.08906)
// The auxiliary loss of sequences is the mean over the samples of a micro-batch of what each one's tokens have. That of
// all tokens of a step ("global", Qiu et al. 2025, arXiv 2501.11873) takes n_e / T of the micro-batches so far, of all
// replicas, in place of its own: their losses have the loss of all as their mean, whose gradient this is on any number
// of replicas (Megatron divides it by that number once more). n has no gradient, and ignores groups, biases and
// capacities. Tokens that are padding count nowhere; a sample's T is then the mean of the samples', as in Megatron.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/moe_router.h"

namespace ms::ops {

struct BalanceParams {
  int64_t topk = 2;
  RouterScores scores = RouterScores::kSoftmax;  // kSoftmaxOfChosen: the same
  int64_t batch = 1;         // samples: token t belongs to sample t % batch, as [seq, batch] has them
  double aux_coeff = 0;      // of the auxiliary loss over all tokens
  double seq_aux_coeff = 0;  // of that of sequences
  double global_aux_coeff = 0;
  double z_coeff = 0;
  // int32 [T, k]: the experts that n counts, in place of those with the highest scores; null: those (DeepSeek-V2's loss
  // counts what groups have left).
  const core::TensorView* chosen = nullptr;
  // Of the tokens: 1 for one that is padding; empty: none is.
  std::span<const uint8_t> padding = {};
  // With sequence or context parallelism the tokens are a part of a micro-batch's: T and n are those of all parts, and
  // the losses this part's, which add up to the whole. sum: adds up counts over the parts, in place; empty: one part.
  int64_t whole_tokens = 0;  // T; 0: the tokens given, none of which is padding then
  std::function<void(std::span<double>)> sum = {};
  // Makes of n of this micro-batch the mean of the micro-batches so far, of all replicas, in place. Empty: it is that.
  std::function<void(std::span<double>)> mean_of_step = {};

  bool counts() const { return aux_coeff != 0 || seq_aux_coeff != 0 || global_aux_coeff != 0; }
  bool any() const { return counts() || z_coeff != 0; }
};

// Without their coefficients, as Megatron logs them; 0 where the coefficient is.
struct BalanceLosses {
  double aux = 0, seq_aux = 0, global_aux = 0, z = 0;

  BalanceLosses& operator+=(const BalanceLosses& more) {
    aux += more.aux, seq_aux += more.seq_aux, global_aux += more.global_aux, z += more.z;
    return *this;
  }
};

// Adds to dlogits, fp32 [T, E], scale times the gradient of the losses times their coefficients. logits: fp32 [T, E].
BalanceLosses add_balance_gradients(Context& context, const core::TensorView& logits, const BalanceParams& params,
                                    double scale, const core::TensorView& dlogits);

}  // namespace ms::ops
