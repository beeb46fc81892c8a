// The rows of all ranks, gathered in parts that are all under way from the beginning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"
#include "train/ops/detail/parts_under_way.h"

namespace ms::ops::detail {

class RowGather {
 public:
  // own [rows, k]: this rank's rows, which must not change meanwhile. target [ranks * rows, k]: where they are gathered
  // if there is one part, whose order is that of the ranks; may be null.
  RowGather(Context& context, core::Communicator& comm, const core::TensorView& own, const RowParts& parts,
            const core::TensorView* target = nullptr)
      : own_(own), parts_(parts), ranks_(comm.size()), rank_(comm.rank()) {
    works_.resize(static_cast<size_t>(parts.size()));
    if (ranks_ == 1 || own.size() == 0) return;
    has_filled_target_ = target != nullptr && parts.size() == 1;
    if (has_filled_target_) {
      gathered_ = *target;
    } else {
      memory_ = core::Tensor(context.arena, own.dtype(), {ranks_ * own.dim(0), own.dim(1)}, core::MemoryTag::kAct);
      gathered_ = memory_;
    }
    for (int64_t part = 0; part < parts.size(); ++part) {
      const auto [begin, end] = parts[part];
      works_[static_cast<size_t>(part)] =
          comm.iallgather(own.rows(begin, end), gathered_.rows(ranks_ * begin, ranks_ * end));
    }
  }

  // Whether target has all rows once they have been visited.
  bool has_filled_target() const { return has_filled_target_; }

  // Calls visit(rows [.., k], first) for rows [begin, end) of the gathered matrix, in order and in one piece or more;
  // first: where in it they begin. Waits for what has not arrived.
  template <class Visit>
  void for_rows(int64_t begin, int64_t end, const Visit& visit) {
    const int64_t each = own_.dim(0);
    while (begin < end) {
      const int64_t rank = begin / each, row = begin % each;
      if (rank == rank_) {
        const int64_t until = std::min(end - rank * each, each);
        visit(own_.rows(row, until), begin);
        begin = rank * each + until;
        continue;
      }
      const int64_t part = parts_.of_row(row);
      const RowRange range = parts_[part];
      works_[static_cast<size_t>(part)].wait();
      const int64_t until = std::min(end - rank * each, range.end);
      const int64_t block = ranks_ * range.begin + rank * range.size() - range.begin;  // of row 0, were it in the part
      visit(gathered_.rows(block + row, block + until), begin);
      begin = rank * each + until;
    }
  }

 private:
  core::TensorView own_;
  RowParts parts_;
  int64_t ranks_, rank_;
  bool has_filled_target_ = false;
  core::TensorView gathered_;
  core::Tensor memory_;
  std::vector<core::Work> works_;  // behind memory_: destroyed before it
};

}  // namespace ms::ops::detail
