// The router of a layer with experts: its scores, the choice of each token's experts, and their weights
// (megatron/core/transformer/moe/router.py, TopKRouter), with its auxiliary losses. Scores are fp32 whatever the
// model's type is.
#pragma once

#include <string>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/model/parameters.h"
#include "train/model/sequence_context.h"
#include "train/ops/linear.h"
#include "train/ops/moe_balance.h"
#include "train/ops/moe_router.h"
#include "train/rank_state.h"

namespace ms::train {

class Router {
 public:
  // name: prefix of its tensors' names, "decoder.layers.N.mlp.router.".
  Router(RankState& state, ParameterStore& parameters, const std::string& name);

  int64_t num_experts() const { return weight_.weight.dim(0); }

  // tokens [tokens, hidden] -> saved.logits, saved.routing.
  void forward(const core::TensorView& tokens, MoeActivations& saved, const SequenceContext& sequence);
  // dprobs [tokens, k], 0 where a choice was dropped. Adds the gradient of the tokens, that of the auxiliary losses in
  // it, to dtokens. batch: samples of the micro-batch. Gives back saved.logits.
  ops::BalanceLosses backward(core::Tensor dprobs, const core::TensorView& tokens, MoeActivations& saved, int64_t batch,
                              const SequenceContext& sequence, const core::TensorView& dtokens);

 private:
  RankState& state_;
  Parameter& weight_;
  const ModelBuffer* bias_;  // added to the scores for the choice; null: none
  ops::RouterParams params_;
  ops::BalanceParams balance_;  // without batch
  ops::WeightGradientSum sum_;
};

}  // namespace ms::train
