#include "train/ops/packed_weight.h"

#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/op_scope.h"

namespace ms::ops {

const kernels::PackedOperand* PackedWeight::read(Context& context, const core::TensorView& weight, Product product) {
  const kernels::GemmType type = detail::gemm_type(weight);
  const auto format = kernels::packed_format(type, context.deterministic);
  const bool forward = product == Product::kForward;
  if (!format || (!forward && *format != kernels::PackedFormat::kAmx)) return nullptr;
  Copy& copy = forward ? forward_ : gradient_;
  if (copy.weight == weight.bytes() && copy.changes == *changes_) return &copy.operand;

  const detail::OpScope scope(context, "ms::pack_weight", weight);
  kernels::GemmProblem problem;
  problem.transpose_b = forward;
  problem.n = weight.dim(forward ? 0 : 1), problem.k = weight.dim(forward ? 1 : 0);
  problem.b = weight.bytes(), problem.b_type = type, problem.ldb = weight.dim(1);
  const int64_t words = kernels::packed_words(*format, problem.n, problem.k);
  if (copy.memory.size_bytes() != words * 4) {
    copy.memory = context.arena.allocate(words * 4, tag_);
  }
  auto* const target = reinterpret_cast<float*>(copy.memory.data());
  const auto kernel = scope.kernel(-1, weight.size_bytes() + words * 4);
  context.pool.parallel_for(kernels::packed_strips(problem.n), 1, [&](int64_t begin, int64_t end) {
    kernels::pack_operand(*format, problem, begin, end, target);
  });
  copy.operand = {*format, problem.n, problem.k, target};
  copy.weight = weight.bytes();
  copy.changes = *changes_;
  ++copy.times;
  return &copy.operand;
}

}  // namespace ms::ops
