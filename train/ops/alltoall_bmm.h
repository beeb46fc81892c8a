// The two products of a layer with experts, together with the exchange of the tokens, for experts of equal capacity
// (as MindSpeed documents them under these names).
//
// E experts are divided over the ep ranks of group_ep, e = E / ep each, and every expert over the tp ranks of group_tp,
// M / tp of its columns, or rows, each. C: tokens that an ep rank has for an expert. shard_type says what of them a tp
// rank has: 0: H / tp columns of all; 1: C / tp rows. Rows of an expert are in the order of the ep ranks that sent
// them, and of an ep rank in that of its tp ranks.
//
// Work goes by expert: while one is multiplied, the messages of others are on their way. Tensors are fp32 or bf16, of
// one dtype. Each function is the other one's adjoint, if weights are transposed and there are neither bias nor
// activation. Both throw kInvalidArgument for what does not fit, before any message. Shapes and options are alike on
// all ranks. MindSpeed passes the sizes of the groups, which are those of the communicators, and requires 2 or more.
#pragma once

#include <string_view>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// MindSpeed's keyword arguments, in its order.
struct AlltoallAllgatherBmmOptions {
  const core::TensorView* bias = nullptr;  // [e, M / tp] or [e, 1, M / tp], of x's dtype, or fp32 that is rounded to it
  int shard_type = 0;
  std::string_view act_type = "None";  // gelu, silu, relu or fastgelu, in any case
  bool need_allgather_out = false;
  bool need_activation_feature = false;
};

struct AlltoallAllgatherBmmResult {
  core::Tensor y1;  // [e, ep C, M / tp]
  core::Tensor y2;  // [e, ep C, H], the tokens that the experts read; undefined unless need_allgather_out
  core::Tensor y3;  // y1 before the activation; undefined unless need_activation_feature, and without activation
};

// y1 = act(y2 weight + bias), y2 = all_gather(all_to_all(x)). x: [E, C, H / tp] or [E, C / tp, H]; weight:
// [e, H, M / tp].
AlltoallAllgatherBmmResult npu_alltoall_allgather_bmm(Context& context, const core::TensorView& x,
                                                      const core::TensorView& weight, core::Communicator& group_ep,
                                                      core::Communicator& group_tp,
                                                      const AlltoallAllgatherBmmOptions& options = {});

struct BmmReducescatterAlltoallOptions {
  // shard_type 0: [e, H / tp] or [e, 1, H / tp]; 1: [e, H] or [e, 1, H]. Of x's dtype, or fp32 that is rounded to it;
  // added once, after the sum.
  const core::TensorView* bias = nullptr;
  int shard_type = 0;
};

// all_to_all(reduce_scatter(x weight) + bias): [E, C, H / tp] or [E, C / tp, H]. x: [e, ep C, M / tp]; weight:
// [e, M / tp, H].
core::Tensor npu_bmm_reducescatter_alltoall(Context& context, const core::TensorView& x, const core::TensorView& weight,
                                            core::Communicator& group_ep, core::Communicator& group_tp,
                                            const BmmReducescatterAlltoallOptions& options = {});

}  // namespace ms::ops
