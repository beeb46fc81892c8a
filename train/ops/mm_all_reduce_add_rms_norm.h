// A row-parallel product, its sum over ranks, the residual and the norm behind it, in one operator (as MindSpeed
// documents it under this name); forward only.
//
//   y = all_reduce(x1 x2 + bias) + residual    norm_out = rms_norm(y) * gamma
//
// Rows are computed in parts: the sum of a part is on its way while the next one is multiplied, and the norm of those
// that have arrived is taken. Sums are those of core/comm/communicator.h, in the order of the ranks; with
// context.deterministic no bit depends on the number of parts.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/comm/communicator.h"
#include "core/tensor.h"
#include "train/ops/context.h"

namespace ms::ops {

// MindSpeed's keyword arguments, in its order; then ours. Views need to live until the call returns.
struct MmAllReduceAddRmsNormOptions {
  std::string_view reduce_op = "sum";  // the only one
  double epsilon = 1e-6;
  // [n], of every rank added to its product: to add a bias once, pass it on one rank only. In the residual's dtype;
  // int32 if x1 is int8, added to the integer sums.
  const core::TensorView* bias = nullptr;
  // If x2 is int8 (or packed 4-bit, train/ops/quantized_matmul.h) and x1 is not: [1], [n] or [1, n], or, in groups of
  // k, [ceil(k / antiquant_group_size), n]; fp32, bf16 or fp16. A weight w is (w + offset) * scale.
  const core::TensorView* antiquant_scale = nullptr;
  const core::TensorView* antiquant_offset = nullptr;  // of the scale's shape and dtype
  const core::TensorView* dequant_scale = nullptr;     // if x1 and x2 are int8: [1], [n] or [1, n]; fp32 or bf16
  int64_t antiquant_group_size = 0;                    // 0: no groups; else a multiple of 32 below k
  int64_t comm_turn = 0;                               // parts; 0: as many as stay large. MindSpeed takes only 0
  bool transpose_x2 = false;                           // x2 is stored [n, k], as torch's x2.t(); not if it is quantised
};

struct MmAllReduceAddRmsNormResult {
  core::Tensor y, norm_out;  // of the residual's shape and dtype
};

// x1: [s, k] or [b, s, k]; x2: [k, n]; residual: [.., n], with as many rows as x1; gamma: [n], in its dtype. That is
// fp32 or bf16, and x1's unless x1 is int8. All arguments but bias are alike in shape and options on all ranks.
// Throws kInvalidArgument for what does not fit, before any message.
MmAllReduceAddRmsNormResult npu_mm_all_reduce_add_rms_norm(Context& context, const core::TensorView& x1,
                                                           const core::TensorView& x2, const core::TensorView& residual,
                                                           const core::TensorView& gamma, core::Communicator& hcom,
                                                           const MmAllReduceAddRmsNormOptions& options = {});

// The same in place: residual becomes y. Returns norm_out. x1 may be the residual itself.
core::Tensor npu_mm_all_reduce_add_rms_norm_(Context& context, const core::TensorView& x1, const core::TensorView& x2,
                                             const core::TensorView& residual, const core::TensorView& gamma,
                                             core::Communicator& hcom,
                                             const MmAllReduceAddRmsNormOptions& options = {});

}  // namespace ms::ops
