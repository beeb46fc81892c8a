// One matrix product per group of rows, all in one call: the linear layers of a rank's experts (MindSpeed's npu_gmm,
// npu_gmm_v2 and npu_groupmatmul_add_fp32).
//
// Group i of x [m, k] is the rows [ends[i - 1], ends[i]); groups may be empty. weight has one matrix per group, all of
// the same shape. x, weight and dy have one dtype: fp32, bf16 or fp16; products are summed in fp32. The pool divides
// the products of all groups as one amount of work, so small and uneven groups keep every thread busy. Every call adds
// its 2 m n k to context.flops. With context.deterministic no bit depends on the number of threads.
//
// Every function throws kInvalidArgument unless there are as many ends as matrices in weight, and they do not decrease
// and end at m.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/activation.h"
#include "train/ops/context.h"

namespace ms::ops {

enum class GroupedWeight : uint8_t {
  kInOut,  // [groups, k, n]: y = x W, as in MindSpeed
  kOutIn,  // [groups, n, k]: y = x W^T, as train/ops/linear.h stores a weight
};

// The matrices of the groups: one tensor of three axes, or matrices of one buffer at equal distances.
struct GroupedMatrices {
  GroupedMatrices(const core::TensorView& stack);  // [groups, rows, columns]
  GroupedMatrices(const core::Tensor& stack) : GroupedMatrices(stack.view()) {}
  // stride: elements from the beginning of one matrix to that of the next one.
  GroupedMatrices(const core::TensorView& first_matrix, int64_t num_groups, int64_t stride_elems);

  core::Dims shape() const { return {groups, first.dim(0), first.dim(1)}; }
  core::DType dtype() const { return first.dtype(); }
  int64_t size_bytes() const { return groups * first.size_bytes(); }
  core::TensorView matrix(int64_t group) const;

  core::TensorView first;  // [rows, columns]
  int64_t groups = 0;
  int64_t stride = 0;
};

// The ends of groups of these sizes. MindSpeed passes ends to npu_gmm and sizes to npu_gmm_v2 (both as group_list).
// Throws kInvalidArgument for a negative size.
std::vector<int64_t> group_ends(std::span<const int64_t> sizes);

// y [m, n] in x's dtype: y[rows of i] = act(x[rows of i] W_i + bias[i]), rounded once. bias: [groups, n] in x's dtype,
// or null.
core::Tensor grouped_matmul(Context& context, const core::TensorView& x, const GroupedMatrices& weight,
                            std::span<const int64_t> ends, GroupedWeight layout, const core::TensorView* bias = nullptr,
                            std::optional<kernels::Activation> activation = {});

// dx [m, k] in dy's dtype: dx[rows of i] = dy[rows of i] W_i^T. dy: [m, n].
core::Tensor grouped_matmul_dgrad(Context& context, const core::TensorView& dy, const GroupedMatrices& weight,
                                  std::span<const int64_t> ends, GroupedWeight layout);

// dW_i = x[rows of i]^T dy[rows of i], in x's dtype and the weight's layout; zeros for an empty group.
core::Tensor grouped_matmul_wgrad(Context& context, const core::TensorView& x, const core::TensorView& dy,
                                  std::span<const int64_t> ends, GroupedWeight layout);

// main_grad_i += x[rows of i]^T dy[rows of i], fused into the products; matrices of empty groups are not touched.
// main_grad: fp32, shape and layout of the weight. x and dy may differ in dtype if one of them is fp32.
void grouped_matmul_add_fp32(Context& context, const core::TensorView& x, const core::TensorView& dy,
                             std::span<const int64_t> ends, const GroupedMatrices& main_grad, GroupedWeight layout);

}  // namespace ms::ops
