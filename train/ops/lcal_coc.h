// Products whose operands or results are divided over ranks, computed while their parts are on their way: MindSpeed's
// coc_ops (mindspeed/ops/lcal_functional.py). A transformer's layers do the same by
// --use-ascend-coc and --use-ascend-mc2.
//
// input1 is [m, k] and never transposed; input2 [k, n] or [n, k]; output exists and is filled. All are fp32 or bf16, of
// one dtype, and output overlaps neither input. The bias is added after the communication. w is the size of the
// communicator. Sums are those of core/comm/communicator.h, in the order of the ranks; with context.deterministic no
// bit depends on the number of parts.
//
// Every function throws kInvalidArgument, before any message, for shapes that do not fit. Shapes and options are alike
// on all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops::coc_ops {

struct CocOptions {
  const core::TensorView* bias = nullptr;  // [1, n] or [n], of the inputs' dtype
  std::optional<bool> transpose_input2;    // unset: as MindSpeed, if input2 does not have k rows
  int64_t parts = 0;                       // messages of each kind (--coc-parallel-num); 0: as many as stay large
};

// output [m, n] = input1 input2 + bias, without communication.
void pure_matmul(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                 const core::TensorView& output, const CocOptions& options = {});

// output [m, n] = sum over ranks of input1 input2, + bias.
void matmul_all_reduce(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                       const core::TensorView& output, core::Communicator& comm, const CocOptions& options = {});

// output [m, n] = gathered input2 + bias, where gathered [m, k] has the input1 [m / w, k] of all ranks, in their order.
void all_gather_matmul(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                       const core::TensorView& output, core::Communicator& comm, const CocOptions& options = {});

// The same; comm_output [m, k] receives gathered.
void all_gather_matmul_v2(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                          const core::TensorView& output, const core::TensorView& comm_output, core::Communicator& comm,
                          const CocOptions& options = {});

// output [m / w, n] = this rank's block of rows of the sum over ranks of input1 input2, + bias.
void matmul_reduce_scatter(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                           const core::TensorView& output, core::Communicator& comm, const CocOptions& options = {});

// The groups of a product of 2D tensor parallelism. MindSpeed names their sizes and which of the two has neighbouring
// ranks (ag_dim, rs_dim, inner_dim_is_ag); here their communicators say both.
struct TP2DConfig {
  core::Communicator& ag;  // gathers input1
  core::Communicator& rs;  // adds up and divides the product
};

// output [m / rs, n] = this rank's block of rows of the sum over config.rs of gathered input2, + bias; gathered [m, k]
// has the input1 [m / ag, k] of config.ag.
void all_gather_matmul_reduce_scatter(Context& context, const core::TensorView& input1, const core::TensorView& input2,
                                      const core::TensorView& output, const TP2DConfig& config,
                                      const CocOptions& options = {});

}  // namespace ms::ops::coc_ops
