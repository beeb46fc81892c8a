#include "train/ops/packed_weight.h"

#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/op_scope.h"

namespace ms::ops {

const kernels::PackedOperand* PackedWeight::read(Context& context, const core::TensorView& weight) {
  const kernels::GemmType type = detail::gemm_type(weight);
  const auto format = kernels::packed_format(type, context.any_threads);
  if (!format) return nullptr;
  if (packed_weight_ == weight.bytes() && packed_changes_ == *changes_) return &operand_;

  const detail::OpScope scope(context, "ms::pack_weight", weight);
  kernels::GemmProblem problem;
  problem.transpose_b = true;
  problem.n = weight.dim(0), problem.k = weight.dim(1);
  problem.b = weight.bytes(), problem.b_type = type, problem.ldb = weight.dim(1);
  const int64_t words = kernels::packed_words(*format, problem.n, problem.k);
  if (memory_.size_bytes() != words * 4) memory_ = context.arena.allocate(words * 4, core::MemoryTag::kPacked);
  auto* const target = reinterpret_cast<float*>(memory_.data());
  const auto kernel = scope.kernel(-1, weight.size_bytes() + words * 4);
  context.pool.parallel_for(kernels::packed_strips(problem.n), 1, [&](int64_t begin, int64_t end) {
    kernels::pack_operand(*format, problem, begin, end, target);
  });
  operand_ = {*format, problem.n, problem.k, target};
  packed_weight_ = weight.bytes();
  packed_changes_ = *changes_;
  ++times_packed_;
  return &operand_;
}

}  // namespace ms::ops
