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
  if (state.tp_size() == 1) return partial;
  if (!state.sequence_parallel()) {
    state.groups.tp.allreduce(partial.view());
    return partial;
  }
  core::Dims shape = partial.shape();
  shape[0] /= state.tp_size();
  core::Tensor part(state.ops.arena, partial.dtype(), shape, core::MemoryTag::kAct);
  state.groups.tp.reduce_scatter(partial, part);
  return part;
}

}  // namespace ms::train
