// The router of a layer with experts: from the scores of all experts to those that each token is sent to and their
// weights, with its gradient (megatron/core/transformer/moe/moe_utils.py: topk_routing_with_score_function,
// group_limited_topk, sinkhorn, apply_router_token_dropping).
//
// T tokens, E experts, k of them for a token: slot t * k + i is the i-th choice of token t, the highest score first, of
// equal ones the expert with the lower index. Scores and weights are fp32, arithmetic on them fp64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// What the weights of the chosen experts are made of.
enum class RouterScores : uint8_t {
  kSoftmaxOfChosen,  // a softmax over the logits of the chosen experts
  kSoftmax,          // their part of the softmax over all experts
  kSigmoid,          // sigmoids, with k above 1 divided by the sum of the chosen ones + 1e-20
  kSqrtSoftplus,     // the same of the roots of log(1 + exp(logit))
};

struct RouterParams {
  int64_t topk = 2;
  RouterScores scores = RouterScores::kSoftmaxOfChosen;
  // Experts are chosen within group_topk of num_groups equal groups: those with the highest sum of their
  // topk / group_topk highest scores (DeepSeek-V3, arXiv 2412.19437), or the highest score itself (DeepSeek-V2, arXiv
  // 2405.04434). 0: no groups.
  int64_t num_groups = 0, group_topk = 0;
  bool groups_by_best = false;
  double scaling_factor = 1;  // of the weights
  // The choice is by the optimal transport of the micro-batch's tokens to the experts (Clark et al. 2022).
  bool sinkhorn = false;
  // With sinkhorn: fp32 [.., E], the logits of all its tokens, if the given ones are a part, which begins at this
  // token.
  const core::TensorView* whole = nullptr;
  int64_t first_token = 0;
  // With sinkhorn: 1 for each of all these tokens that is padding, and takes no part; empty: none is.
  std::span<const uint8_t> padding = {};
  // The choice is the sparse mixer's (detail/sparse_mixer.h), whose gates are the weights; topk is 2.
  bool sparse_mixer = false;
  // With it, in training: fp32 [T, 2 (E + 1)], uniform in (0, 1); null: nothing is drawn.
  const core::TensorView* draws = nullptr;
  bool fixed = false;  // slot s is sent to expert s % E, whatever the scores are
};

struct Routing {
  core::Tensor experts;  // int32 [T, k], 0 to E - 1
  core::Tensor probs;    // fp32 [T, k]: weight of each choice; 0 where it was dropped
  // int32 [T, k]: where each slot is sent, E if it was dropped. Undefined: nothing was dropped or has moved, experts
  // says so.
  core::Tensor destinations;
  std::vector<uint8_t> padding = {};  // [T]: 1 for a token that is padding, whose slots are dropped; empty: none is

  const core::TensorView& sent_to() const { return destinations.defined() ? destinations.view() : experts.view(); }
};

// logits: fp32 [T, E]. expert_bias: fp32 [E], added for the choice alone to the scores one by one, or to the softmax
// over all experts; null: none.
Routing choose_experts(Context& context, const core::TensorView& logits, const RouterParams& params,
                       const core::TensorView* expert_bias = nullptr);

// dprobs [T, k] -> dlogits, fp32 [T, E]. The choice itself has no gradient. dprobs is 0 where a slot was dropped.
core::Tensor choose_experts_backward(Context& context, const core::TensorView& dprobs, const core::TensorView& logits,
                                     const Routing& routing, const RouterParams& params);

// Drops the slots of tokens that are padding [T], or none if it is empty; destinations are defined then.
void drop_padding(Context& context, Routing& routing, int64_t num_experts, std::vector<uint8_t> padding);

// Which slots of an expert stay if it was chosen more often than its capacity.
enum class DropPolicy : uint8_t { kProbs, kPosition };  // the highest weights, of equal ones, or else: the first tokens

// Slots that an expert may have: ceil(T k / E * factor), at most all.
int64_t expert_capacity(int64_t num_tokens, int64_t topk, int64_t num_experts, double factor);

// Drops what is beyond an expert's capacity, of slots that are not dropped yet. Weights of what stays do not change.
void drop_beyond_capacity(Context& context, Routing& routing, int64_t num_experts, int64_t capacity, DropPolicy policy);

// How many slots are sent to each expert, [E].
std::vector<int64_t> tokens_per_expert(const core::TensorView& sent_to, int64_t num_experts);

}  // namespace ms::ops
