// The communication of tensor and sequence parallelism before and after a pair of linear layers
// (megatron/core/tensor_parallel/mappings.py). Without TP every function returns its input.
//
// hidden is [seq, batch, hidden]; with sequence parallelism the regions outside the pair hold [seq / tp, batch,
// hidden].
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "core/layout/tensor_overlap.h"
#include "core/tensor.h"
#include "train/rank_state.h"

namespace ms::train {

// Into a column-parallel layer: all-gathers the sequence with SP (result in `gathered`, tag act), else returns x.
core::TensorView enter_column_parallel(RankState& state, const core::TensorView& x, core::Tensor& gathered);

// Out of a row-parallel layer (and, in backward, out of a column-parallel one): partial sums over TP become the sum:
// reduce-scattered along the sequence with SP, else all-reduced in place.
core::Tensor leave_row_parallel(RankState& state, core::Tensor partial);

// How rows of a sequence are divided into parts, of which each has a piece of every block: with SP the blocks are the
// ranks' parts of the sequence, so that each rank sends or receives as much of every part; else there is one block.
// Rows: of the outermost axis, positions.
class SequenceParts {
 public:
  SequenceParts(const RankState& state, int64_t seq, int64_t parts)
      : parts_(parts), blocks_(state.sequence_parallel() ? state.tp_size() : 1), piece_(seq / blocks_ / parts_) {}
  int64_t parts() const { return parts_; }
  int64_t blocks() const { return blocks_; }
  int64_t piece() const { return piece_; }  // rows
  // The rows of a piece, in the sequence and where the parts follow one another.
  core::TensorView in_sequence(const core::TensorView& x, int64_t part, int64_t block) const {
    const int64_t begin = (block * parts_ + part) * piece_;
    return x.rows(begin, begin + piece_);
  }
  core::TensorView in_parts(const core::TensorView& x, int64_t part, int64_t block) const {
    const int64_t begin = (part * blocks_ + block) * piece_;
    return x.rows(begin, begin + piece_);
  }
  core::TensorView part(const core::TensorView& x, int64_t part) const {
    return x.rows(part * blocks_ * piece_, (part + 1) * blocks_ * piece_);
  }
  // The rows of a block in the sequence.
  core::TensorView block(const core::TensorView& x, int64_t block) const {
    return x.rows(block * parts_ * piece_, (block + 1) * parts_ * piece_);
  }

 private:
  int64_t parts_, blocks_, piece_;
};

// Into how many parts the products of a sequence are cut (--use-ascend-coc, --use-ascend-mc2). seq: the whole one's
// positions. Without TP one.
SequenceParts sequence_parts(const RankState& state, int64_t seq, int64_t batch);

// enter_column_parallel in parts, whose all-gathers are all posted by the constructor. A rank computes with what has
// arrived while others still read its x, which must not change until for_each_piece() or for_whole() has returned.
class SequenceGather {
 public:
  SequenceGather() = default;
  SequenceGather(RankState& state, const core::TensorView& x, const SequenceParts& parts);
  // In one part; without SP nothing is gathered.
  SequenceGather(RankState& state, const core::TensorView& x)
      : SequenceGather(state, x, {state, x.dim(0) * (state.sequence_parallel() ? state.tp_size() : 1), 1}) {}
  // Hands on the pieces of the other ranks, those of a part when it has arrived.
  void for_each_piece(core::FunctionRef<void(int64_t part, int64_t block, const core::TensorView& rows)> body);
  // Calls body once, with the whole sequence (of a gather in one part), or with x without SP.
  void for_whole(core::FunctionRef<void(const core::TensorView& whole)> body);
  // The whole sequence with shared ownership, for use after the gather is destroyed. Only with SP.
  core::Tensor share() { return gathered_.share(); }

 private:
  void wait_for_others();

  core::Tensor gathered_;
  core::TensorView whole_;  // gathered_, or x without SP
  std::optional<SequenceParts> parts_;
  int64_t own_ = 0;                // block
  std::vector<core::Work> works_;  // behind gathered_: destroyed before it
};

// Partial sums over TP in two halves, between which something else can be computed. A residual, of the sum's shape, is
// added to it, and must not change before take(): without SP, where all ranks have all rows, each adds it to those that
// it reduces for the others.
class PartialSum {
 public:
  PartialSum() = default;
  PartialSum(core::Tensor whole) : partial_(std::move(whole)) {}  // without TP: there is nothing to sum
  PartialSum(RankState& state, core::Tensor partial, std::optional<core::TensorView> residual = {})
      : state_(&state), partial_(std::move(partial)), residual_(residual) {}
  // A product in parts, each of which is reduced while the next one is computed. shape: of the whole product. compute:
  // is called for every piece; its rows are to be filled.
  PartialSum(RankState& state, const core::Dims& shape, core::DType dtype, const SequenceParts& parts,
             core::FunctionRef<void(int64_t part, int64_t block, const core::TensorView& rows)> compute,
             std::optional<core::TensorView> residual = {});

  // Posts the reduction; it is under way until take().
  void start();
  // The sum; start()s and waits, if need be. Once.
  core::Tensor take();

 private:
  // Of rows without SP, onto those of the residual, if there is one.
  core::Work all_reduce(const core::TensorView& rows, const core::TensorView* residual) const;

  RankState* state_ = nullptr;   // null: nothing to sum
  core::Tensor partial_, part_;  // part_: with SP. Before works_: destroyed after them
  std::optional<core::TensorView> residual_;
  std::vector<core::Work> works_;
  bool is_started_ = false;
};

}  // namespace ms::train
