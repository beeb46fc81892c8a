#include "train/parallel/mappings.h"

namespace ms::train {

core::TensorView enter_column_parallel(RankState& state, const core::TensorView& x, core::Tensor& gathered) {
  if (!state.sequence_parallel()) return x;
  core::Dims shape = x.shape();
  shape[0] *= state.tp_size();
  gathered = core::Tensor(state.ops.arena, x.dtype(), shape, core::MemoryTag::kAct);
  state.groups.tp.allgather(x, gathered);
  return gathered;
}

core::Tensor leave_row_parallel(RankState& state, core::Tensor partial) {
  return PartialSum(state, std::move(partial)).take();
}

void PartialSum::start() {
  if (is_started_ || state_ == nullptr || state_->tp_size() == 1) return;
  is_started_ = true;
  if (!state_->sequence_parallel()) {
    work_ = state_->groups.tp.iallreduce(partial_.view());
    return;
  }
  core::Dims shape = partial_.shape();
  shape[0] /= state_->tp_size();
  part_ = core::Tensor(state_->ops.arena, partial_.dtype(), shape, core::MemoryTag::kAct);
  work_ = state_->groups.tp.ireduce_scatter(partial_, part_);
}

core::Tensor PartialSum::take() {
  start();
  work_.wait();
  if (!part_.defined()) return std::move(partial_);
  partial_.reset();
  return std::move(part_);
}

}  // namespace ms::train
