#include "train/parallel/mappings.h"

#include "train/ops/elementwise.h"

namespace ms::train {

core::TensorView enter_column_parallel(RankState& state, const core::TensorView& x, core::Tensor& gathered) {
  if (!state.sequence_parallel()) return x;
  core::Dims shape = x.shape();
  shape[0] *= state.tp_size();
  gathered = core::Tensor(state.ops.arena, x.dtype(), shape, core::MemoryTag::kAct);
  state.groups.tp.allgather(x, gathered);
  return gathered;
}

SequenceParts sequence_parts(const RankState& state, int64_t seq, int64_t batch) {
  const layout::TensorOverlap overlap = tensor_overlap(state.config);
  const int64_t own = state.sequence_parallel() ? seq / state.tp_size() : seq;
  return {state, seq, state.tp_size() == 1 ? 1 : overlap.product_parts(own, batch)};
}

SequenceGather::SequenceGather(RankState& state, const core::TensorView& x, const SequenceParts& parts)
    : whole_(x), parts_(parts), own_(state.tp_rank()) {
  if (!state.sequence_parallel()) return;
  core::Dims shape = x.shape();
  shape[0] *= state.tp_size();
  gathered_ = core::Tensor(state.ops.arena, x.dtype(), shape, core::MemoryTag::kAct);
  whole_ = gathered_;
  for (int64_t part = 0; part < parts.parts(); ++part) {
    const core::TensorView own = x.rows(part * parts.piece(), (part + 1) * parts.piece());
    works_.push_back(state.groups.tp.iallgather(own, parts.part(gathered_, part)));
  }
}

void SequenceGather::for_whole(core::FunctionRef<void(const core::TensorView& whole)> body) {
  for (core::Work& work : works_) work.wait_for_output();
  body(whole_);
  wait_for_others();
}

void SequenceGather::for_each_piece(
    core::FunctionRef<void(int64_t part, int64_t block, const core::TensorView& rows)> body) {
  for (int64_t part = 0; part < parts_->parts(); ++part) {
    works_[static_cast<size_t>(part)].wait_for_output();
    for (int64_t block = 0; block < parts_->blocks(); ++block) {
      if (block != own_) body(part, block, parts_->in_parts(gathered_, part, block));
    }
  }
  wait_for_others();
}

void SequenceGather::wait_for_others() {
  for (core::Work& work : works_) work.wait();
}

core::Tensor leave_row_parallel(RankState& state, core::Tensor partial) {
  return PartialSum(state, std::move(partial)).take();
}

PartialSum::PartialSum(RankState& state, const core::Dims& shape, core::DType dtype, const SequenceParts& parts,
                       core::FunctionRef<void(int64_t part, int64_t block, const core::TensorView& rows)> compute,
                       std::optional<core::TensorView> residual)
    : state_(&state),
      partial_(state.ops.arena, dtype, shape, core::MemoryTag::kAct),
      residual_(residual),
      is_started_(true) {
  const bool scatters = state.sequence_parallel();
  if (scatters) {
    core::Dims own = shape;
    own[0] /= state.tp_size();
    part_ = core::Tensor(state.ops.arena, dtype, own, core::MemoryTag::kAct);
  }
  for (int64_t part = 0; part < parts.parts(); ++part) {
    for (int64_t block = 0; block < parts.blocks(); ++block)
      compute(part, block, parts.in_parts(partial_, part, block));
    const core::TensorView rows = parts.part(partial_, part);
    if (scatters) {
      works_.push_back(
          state.groups.tp.ireduce_scatter(rows, part_.view().rows(part * parts.piece(), (part + 1) * parts.piece())));
    } else if (residual_) {
      const core::TensorView of_rows = parts.part(*residual_, part);
      works_.push_back(all_reduce(rows, &of_rows));
    } else {
      works_.push_back(all_reduce(rows, nullptr));
    }
  }
}

core::Work PartialSum::all_reduce(const core::TensorView& rows, const core::TensorView* residual) const {
  core::Communicator& tp = state_->groups.tp;
  return residual == nullptr ? tp.iallreduce(rows) : tp.iallreduce_onto(rows, *residual);
}

void PartialSum::start() {
  if (is_started_ || state_ == nullptr || state_->tp_size() == 1) return;
  is_started_ = true;
  if (!state_->sequence_parallel()) {
    works_.push_back(all_reduce(partial_, residual_ ? &*residual_ : nullptr));
    return;
  }
  core::Dims shape = partial_.shape();
  shape[0] /= state_->tp_size();
  part_ = core::Tensor(state_->ops.arena, partial_.dtype(), shape, core::MemoryTag::kAct);
  works_.push_back(state_->groups.tp.ireduce_scatter(partial_, part_));
}

core::Tensor PartialSum::take() {
  start();
  for (core::Work& work : works_) work.wait();
  if (!part_.defined()) return std::move(partial_);
  partial_.reset();
  if (residual_) ops::add_inplace(state_->ops, part_, *residual_);
  return std::move(part_);
}

}  // namespace ms::train
