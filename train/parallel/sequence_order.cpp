#include "train/parallel/sequence_order.h"

#include "core/layout/context_parallel.h"
#include "train/ops/elementwise.h"

namespace ms::train {

using core::Tensor;
using core::TensorView;
namespace {

// Calls move(rows, positions) for the runs of rows of all ranks, and the same in the order of positions.
template <class Move>
void for_each_run_of_ranks(const TensorView& by_rank, const TensorView& by_position, int ranks, const Move& move) {
  const int64_t seq = by_rank.dim(0), rows = seq / ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const layout::SequenceShare share(layout::ContextAlgorithm::kRing, seq, ranks, rank);
    share.for_each_run(0, rows, [&](int64_t row, int64_t position, int64_t count) {
      const int64_t begin = rank * rows + row;
      move(by_rank.rows(begin, begin + count), by_position.rows(position, position + count));
    });
  }
}

}  // namespace

Tensor rows_by_position(ops::Context& ops, Tensor x, int ranks) {
  Tensor ordered(ops.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  for_each_run_of_ranks(x, ordered, ranks, [&](const TensorView& rows, const TensorView& positions) {
    ops::cast_into(ops, rows, positions);
  });
  return ordered;
}

Tensor rows_by_rank(ops::Context& ops, Tensor x, int ranks) {
  Tensor parts(ops.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  for_each_run_of_ranks(parts, x, ranks, [&](const TensorView& rows, const TensorView& positions) {
    ops::cast_into(ops, positions, rows);
  });
  return parts;
}

}  // namespace ms::train
