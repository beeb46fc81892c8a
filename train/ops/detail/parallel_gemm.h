// A product divided over the pool, with its span and its FLOPs.
#pragma once

#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "train/ops/context.h"
#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/op_scope.h"

namespace ms::ops::detail {

// Divides C's longer side over the pool, so that each thread packs as little as possible of the other operand.
inline void parallel_gemm(Context& context, const OpScope& scope, kernels::GemmProblem problem, int64_t bytes) {
  problem.deterministic = context.deterministic;
  const int64_t flops = 2 * problem.m * problem.n * problem.k;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, bytes);
  if (problem.m >= problem.n) {
    context.pool.parallel_for(problem.m, kRowGrain,
                              [&](int64_t begin, int64_t end) { kernels::gemm(rows_of(problem, begin, end)); });
  } else {
    context.pool.parallel_for(problem.n, kColumnGrain,
                              [&](int64_t begin, int64_t end) { kernels::gemm(columns_of(problem, begin, end)); });
  }
}

}  // namespace ms::ops::detail
