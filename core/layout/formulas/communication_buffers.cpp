#include "core/layout/formulas/communication_buffers.h"

#include <algorithm>

#include "core/comm/comm_op.h"
#include "core/layout/process_group_table.h"
#include "core/layout/sharding.h"

namespace ms::layout {
namespace {

constexpr int64_t kFp32 = sizeof(float);

class Scratch {
 public:
  Scratch(const TrainingStep& step, int rank) : step_(step), grid_(step.layout.grid()), rank_(rank) {}

  int64_t peak() {
    const int64_t tp = grid_.tp, rows = step_.tokens();
    const int64_t hidden = rows * step_.model.hidden_size * core::size_of(step_.dtype);
    const StageParameters stage = stage_parameters(step_, grid_.coordinates(rank_).pp);
    if (tp > 1) {
      largest(step_.sequence_parallel ? reduce_scatter(hidden, tp) : allreduce(hidden, tp));
      if (grid_.coordinates(rank_).pp == stage_of_loss(step_.layout)) largest(allreduce(rows * kFp32, tp));
    }
    const int64_t partial = stage.partial_grad_elems * kFp32;
    if (partial > 0) largest(allreduce(partial, tp));
    const auto sums = static_cast<int64_t>(parameter_specs(step_.model).size() * sizeof(double));
    const int64_t gradients = stage.buffer_elems * kFp32;
    const bool distributed = step_.layout.zero_stage > 0;
    if (grid_.dp > 1) {
      largest(distributed ? reduce_scatter(gradients, grid_.dp) : allreduce(gradients, grid_.dp));
      if (distributed) largest(allreduce(sums, grid_.dp));
    }
    if (grid_.tp * grid_.pp > 1) largest(allreduce(sums, grid_.tp * grid_.pp));
    if (has_embedding_copy(step_.model, step_.layout) && !ranks_of_group(Group::kEmbedding, grid_, rank_).empty())
      largest(allreduce(stage.embedding_elems * kFp32, 2));
    return peak_ + partial;  // a run reports the sum of both, whose memory is apart
  }

 private:
  static int64_t allreduce(int64_t bytes, int64_t n) {
    return core::reduction_scratch_bytes(core::CommOp::kAllreduce, bytes, n);
  }
  static int64_t reduce_scatter(int64_t bytes, int64_t n) {
    return core::reduction_scratch_bytes(core::CommOp::kReduceScatter, bytes, n);
  }
  void largest(int64_t bytes) { peak_ = std::max(peak_, bytes); }

  const TrainingStep& step_;
  RankGrid grid_;
  int rank_;
  int64_t peak_ = 0;
};

}  // namespace

int64_t communication_buffer_bytes(const TrainingStep& step, int rank) { return Scratch(step, rank).peak(); }

}  // namespace ms::layout
