// Brings the tokens of a layer with experts to their experts, and what the experts give back to the tokens
// (megatron/core/transformer/moe/token_dispatcher.py).
//
// A rank has T tokens of its own, which have chosen k of E experts each; E / ep experts are on it, of each 1 / etp.
// What the experts read are rows, one for each choice of one of these experts, sorted by expert. beta: bytes of an
// element.
//
//   on one rank  each token is copied to its rows
//   alltoall     each rank sends a row to the rank of its ep group that has the expert; the etp ranks then share their
//                rows. Sent forward: 2 h beta for each row that leaves, besides the E counts of each rank
//   hierarchical ranks with the same place in all b blocks (ep_outer) gather tokens, scores and choices; within its
//                block (tp) a rank sends rows as alltoall; the results are added up over the blocks.
//                Sent forward to other blocks: 2 (b - 1) T h beta + (b - 1) T k 8
//   allgather    all etp x ep ranks get all tokens, scores and choices, and add up what their experts give.
//                Sent forward by each of n ranks: 2 (n - 1) T h beta + (n - 1) T k 8
//
// Where samples have their own lengths, T differs between ranks, and those that gather tokens tell each other first.
// Choices that were dropped, those of padding among them, have no row.
//
// In backward the rows' weights travel with the gradients, and the gradients of the weights back.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "train/memory/moe_activations.h"
#include "train/rank_state.h"

namespace ms::train {

class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;

  struct RowGradients {
    core::Tensor rows;     // [rows, hidden]: of what the experts give, before it is weighted
    core::Tensor weights;  // fp32 [rows]: the weights
  };
  struct TokenGradients {
    core::Tensor tokens;  // [T, hidden]
    core::Tensor probs;   // fp32 [T, k]; 0 where a choice was dropped
  };

  // tokens [T, hidden], saved.routing -> saved.permuted [rows, hidden], saved.ends, saved.sent, and what the other
  // functions need.
  void dispatch(const core::TensorView& tokens, MoeActivations& saved) {
    start_dispatch(tokens, saved);
    finish_dispatch(saved);
  }

  // The same in two halves, and the three other exchanges: the first posts it, the second waits for it. What is
  // computed in between needs neither its operands nor its result. What is under way is in saved.pass: one exchange of
  // a micro-batch at a time, of several at once.
  virtual void start_dispatch(const core::TensorView& tokens, MoeActivations& saved) = 0;
  virtual void finish_dispatch(MoeActivations& saved) = 0;
  // The same rows once more, of the same tokens, to saved.permuted; beside another exchange.
  virtual void start_again(const core::TensorView& tokens, MoeActivations& saved) = 0;
  virtual void finish_again(MoeActivations& saved) = 0;
  // rows [rows, hidden], what the experts give -> [T, hidden]: the sum over each token's choices, weighted.
  virtual void start_combine(core::Tensor rows, MoeActivations& saved) = 0;
  virtual core::Tensor finish_combine(MoeActivations& saved) = 0;
  // dy [T, hidden], the gradient of the sums.
  virtual void start_dispatch_gradient(const core::TensorView& dy, MoeActivations& saved) = 0;
  virtual RowGradients finish_dispatch_gradient(MoeActivations& saved) = 0;
  // of.rows [rows, hidden]: the gradient of saved.permuted; of.weights: of the weights.
  virtual void start_combine_gradient(RowGradients of, MoeActivations& saved) = 0;
  virtual TokenGradients finish_combine_gradient(MoeActivations& saved) = 0;
};

// The one that the configuration asks for.
std::unique_ptr<TokenDispatcher> make_token_dispatcher(RankState& state);

}  // namespace ms::train
