// The parts of a micro-batch's tokens that ranks route, each its own: the ranks of tensor parallelism, and those that
// share its sequences. What looks at all tokens of the micro-batch gathers them here, without those of padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/model/sequence_context.h"
#include "train/rank_state.h"

namespace ms::train {

class RoutedParts {
 public:
  // tokens: how many this rank routes, [positions, batch]. Refers to state and sequence. Throws kInternal if those of
  // all parts are not whole sequences.
  RoutedParts(RankState& state, const SequenceContext& sequence, int64_t tokens);

  int count() const { return state_.tp_size() * sharing_; }
  // Of this rank's part, in the order in which of_all() has them.
  int64_t first_token() const { return (at_ * state_.tp_size() + state_.tp_rank()) * tokens_; }
  // Of all parts, without padding.
  int64_t whole_tokens() const;

  // own [tokens, ..] of any dtype -> [all tokens, ..], the rows of all parts in the order of ranks: those that share
  // sequences, and TP ranks of each. Collective; undefined with one part, where own is all.
  core::Tensor of_all(const core::TensorView& own) const;
  // The rows of of_all() in the order of their positions, as one rank would have them.
  core::Tensor by_position(core::Tensor parts) const;
  // Calls visit(token, token of the whole, count) for runs of this rank's tokens and of those that by_position() gives.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    const int64_t rows = tokens_ / batch_, first = state_.tp_rank() * rows;
    sequence_.share.for_each_run(first, first + rows, [&](int64_t row, int64_t position, int64_t positions) {
      visit((row - first) * batch_, position * batch_, positions * batch_);
    });
  }
  // Of all parts, in place. Collective.
  void sum(std::span<double> counts) const;

  // 1 for each token that is padding: of this rank, of of_all(), and of by_position(). Empty: none of the micro-batch
  // is.
  std::vector<uint8_t> padding() const;
  std::vector<uint8_t> padding_of_all() const;
  std::vector<uint8_t> padding_by_position() const;

 private:
  bool has_padding() const;
  // Of a rank that shares the sequence, and has rows [first, end) of its positions.
  void add_padding(const layout::SequenceShare& share, int64_t first, int64_t end, std::vector<uint8_t>& padding) const;
  layout::SequenceShare share_of(int rank) const;

  RankState& state_;
  const SequenceContext& sequence_;
  int64_t tokens_, batch_, seq_;
  int sharing_, at_;           // ranks that share the sequences, and which of them this is
  core::Communicator* ranks_;  // of these; null: one
};

}  // namespace ms::train
