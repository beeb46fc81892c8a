// The router of a layer with experts: its scores, the choice of each token's experts, and their weights
// (megatron/core/transformer/moe/router.py, TopKRouter), with its auxiliary losses. Scores are fp32 whatever the
// model's type is.
//
// With tensor or context parallelism each rank routes its part of the sequence; what looks at all tokens of a
// micro-batch (sinkhorn, a capacity) gathers what it needs of the others', so that the layout changes no choice.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/model/parameters.h"
#include "train/model/routed_parts.h"
#include "train/model/sequence_context.h"
#include "train/ops/linear.h"
#include "train/ops/moe_balance.h"
#include "train/ops/moe_router.h"
#include "train/ops/token_noise.h"
#include "train/rank_state.h"

namespace ms::train {

class Router {
 public:
  // Its tensors' names begin with "decoder.layers.N.mlp.router.".
  Router(RankState& state, ParameterStore& parameters, int64_t layer);

  int64_t num_experts() const { return weight_.weight.dim(0); }

  // tokens [tokens, hidden] -> saved.logits, saved.routing. Padding chooses no expert.
  void forward(const core::TensorView& tokens, MoeActivations& saved, const SequenceContext& sequence);
  // dprobs [tokens, k], 0 where a choice was dropped. Adds the gradient of the tokens, that of the auxiliary losses in
  // it, to dtokens. batch: samples of the micro-batch. Gives back saved.logits.
  ops::BalanceLosses backward(core::Tensor dprobs, const core::TensorView& tokens, MoeActivations& saved, int64_t batch,
                              const SequenceContext& sequence, const core::TensorView& dtokens);

 private:
  bool jitters(const SequenceContext& sequence) const { return jitter_eps_ > 0 && sequence.training(); }
  // Calls add(rows, noise) for the runs of tokens whose positions follow one another.
  void for_each_noise(uint64_t key, const core::TensorView& tokens, const SequenceContext& sequence,
                      const std::function<void(const core::TensorView&, const ops::TokenNoise&)>& add) const;
  void jitter(const core::TensorView& tokens, const SequenceContext& sequence) const;
  // What the weight multiplies: a copy in `jittered`, or the tokens themselves.
  const core::TensorView& input(const core::TensorView& tokens, const SequenceContext& sequence,
                                core::Tensor& jittered);
  // What the sparse mixer draws.
  core::Tensor draw(int64_t tokens, const SequenceContext& sequence);
  void drop(ops::Routing& routing, double factor, const RoutedParts& parts);
  void mean_of_step(std::span<double> counts);

  RankState& state_;
  int64_t layer_;
  Parameter& weight_;
  const ModelBuffer* bias_;  // added to the scores for the choice; null: none
  ops::RouterParams params_;
  ops::BalanceParams balance_;  // of no micro-batch
  bool fp64_;                   // its products
  bool counts_choices_;         // by the auxiliary loss
  bool pads_;                   // samples of their own lengths
  double jitter_eps_;
  uint64_t jitter_key_, logits_key_, draws_key_;
  ops::WeightGradientSum sum_;
};

}  // namespace ms::train
