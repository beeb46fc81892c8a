// Products of groups of rows whose k is divided over ranks, and their sums (as MindSpeed documents it under this name);
// forward only. The sum of a group, or of a part of a large one, is on its way while the next is multiplied.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// MindSpeed's keyword arguments, in its order. What they refer to needs to live until the call returns.
struct GroupedMatMulAllReduceOptions {
  // None, or one per group: [n_i], of x's dtype, or fp32 that is rounded to it. Every rank adds 1 / ranks of its own,
  // so that one which all pass is added once.
  std::span<const core::TensorView> bias;
  std::span<const int64_t> group_list;  // the ends of the groups' rows, if x is one tensor
  int split_item = 0;                   // 0: x and y are one tensor per group; 1: x is one; 2: y is one; 3: both are
  std::string_view reduce_op = "sum";   // the only one
  int64_t comm_turn = 0;                // parts of a group; 0: as many as stay large. MindSpeed takes only 0
};

// y_i [m_i, n_i] = sum over ranks of x_i weight_i, + bias_i, for at most 64 groups; one tensor per group, or, with
// split_item 2 and 3, all rows in one. x_i: [m_i, k_i], or rows of one tensor; weight_i: [k_i, n_i]. fp32 or bf16, all
// of one dtype. An empty group is no message. Shapes and options are alike on all ranks.
// Throws kInvalidArgument for what does not fit, before any message.
std::vector<core::Tensor> npu_grouped_mat_mul_all_reduce(Context& context, std::span<const core::TensorView> x,
                                                         std::span<const core::TensorView> weight,
                                                         core::Communicator& hcomm,
                                                         const GroupedMatMulAllReduceOptions& options = {});

}  // namespace ms::ops
