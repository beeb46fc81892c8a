#include "train/ops/grouped_matmul.h"

#include <algorithm>

#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/groups.h"
#include "train/ops/detail/op_scope.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;
using kernels::GemmProblem;

// A product divided along C's longer side, as in linear.cpp; pieces of all products take about the same time.
struct Pieces {
  explicit Pieces(const GemmProblem& problem)
      : by_rows(problem.m >= problem.n),
        length(by_rows ? problem.m : problem.n),
        grain(by_rows ? detail::kRowGrain : detail::kColumnGrain),
        count((length + grain - 1) / grain),
        flops_of_one(2 * grain * std::max<int64_t>((by_rows ? problem.n : problem.m) * problem.k, 1)) {}

  GemmProblem part(const GemmProblem& problem, int64_t first, int64_t last) const {
    const int64_t begin = first * grain, end = std::min(last * grain, length);
    return by_rows ? detail::rows_of(problem, begin, end) : detail::columns_of(problem, begin, end);
  }

  bool by_rows;
  int64_t length, grain, count, flops_of_one;
};

// Each thread computes the pieces that begin within its share of the total work.
void run_all(Context& context, const detail::OpScope& scope, const std::vector<GemmProblem>& problems, int64_t bytes) {
  int64_t flops = 0, work = 0;
  for (const GemmProblem& problem : problems) {
    const Pieces pieces(problem);
    flops += 2 * problem.m * problem.n * problem.k;
    work += pieces.count * pieces.flops_of_one;
  }
  context.flops += flops;
  const auto kernel = scope.kernel(flops, bytes);
  const int threads = context.pool.num_threads();
  context.pool.run_parts(threads, [&](int thread) {
    const int64_t begin = work / threads * thread, end = thread + 1 == threads ? work : work / threads * (thread + 1);
    int64_t before = 0;  // work of the products before this one
    for (const GemmProblem& problem : problems) {
      const Pieces pieces(problem);
      const auto first_from = [&](int64_t share) {
        return std::clamp<int64_t>((share - before + pieces.flops_of_one - 1) / pieces.flops_of_one, 0, pieces.count);
      };
      const int64_t first = first_from(begin), last = first_from(end);
      if (first < last) {
        GemmProblem part = pieces.part(problem, first, last);
        part.deterministic = context.deterministic;
        kernels::gemm(part);
      }
      before += pieces.count * pieces.flops_of_one;
    }
  });
}

// Address of an element, for the rows of a group.
const void* at(const TensorView& x, int64_t elements) { return x.bytes() + elements * core::size_of(x.dtype()); }

struct Sizes {
  int64_t groups, k, n;
};

Sizes sizes_of(const GroupedMatrices& weight, GroupedWeight layout) {
  const bool in_out = layout == GroupedWeight::kInOut;
  return {weight.groups, weight.first.dim(in_out ? 0 : 1), weight.first.dim(in_out ? 1 : 0)};
}

// Problems for dW of every group, or only of those that have rows, into c.
std::vector<GemmProblem> weight_gradients(const TensorView& x, const TensorView& dy, std::span<const int64_t> ends,
                                          const GroupedMatrices& c, GroupedWeight layout, bool accumulate) {
  const bool in_out = layout == GroupedWeight::kInOut;
  const TensorView &left = in_out ? x : dy, &right = in_out ? dy : x;
  std::vector<GemmProblem> problems;
  detail::for_groups(ends, [&](int64_t group, int64_t first, int64_t rows) {
    if (rows == 0 && accumulate) return;
    GemmProblem problem;
    problem.transpose_a = true;
    problem.m = left.dim(1), problem.n = right.dim(1), problem.k = rows;
    problem.a = at(left, first * problem.m), problem.a_type = detail::gemm_type(left), problem.lda = problem.m;
    problem.b = at(right, first * problem.n), problem.b_type = detail::gemm_type(right), problem.ldb = problem.n;
    problem.c = const_cast<void*>(at(c.first, group * c.stride));
    problem.c_type = detail::gemm_type(c.first), problem.ldc = problem.n;
    problem.accumulate = accumulate;
    problems.push_back(problem);
  });
  return problems;
}

void check_tokens(const TensorView& x, const TensorView& dy) {
  MS_CHECK(x.shape().size() == 2 && dy.shape().size() == 2 && x.dim(0) == dy.dim(0), "grouped matmul: x is ",
           core::cat(x.shape()), ", dy ", core::cat(dy.shape()));
}

core::Dims weight_shape(std::span<const int64_t> ends, const TensorView& x, const TensorView& dy,
                        GroupedWeight layout) {
  const auto groups = static_cast<int64_t>(ends.size());
  if (layout == GroupedWeight::kInOut) return {groups, x.dim(1), dy.dim(1)};
  return {groups, dy.dim(1), x.dim(1)};
}

TensorView first_of(const TensorView& stack) {
  MS_CHECK(stack.shape().size() == 3, "grouped matmul: weight is ", core::cat(stack.shape()), ", expected 3 axes");
  return TensorView(stack.bytes(), stack.dtype(), {stack.dim(1), stack.dim(2)});
}

}  // namespace

GroupedMatrices::GroupedMatrices(const TensorView& stack)
    : first(first_of(stack)), groups(stack.dim(0)), stride(first.size()) {}

GroupedMatrices::GroupedMatrices(const TensorView& first_matrix, int64_t num_groups, int64_t stride_elems)
    : first(first_matrix), groups(num_groups), stride(stride_elems) {
  MS_CHECK(first.shape().size() == 2 && (groups < 2 || stride >= first.size()), "grouped matmul: matrices ",
           core::cat(first.shape()), " at a distance of ", stride);
}

TensorView GroupedMatrices::matrix(int64_t group) const {
  return TensorView(first.bytes() + group * stride * core::size_of(first.dtype()), first.dtype(), first.shape());
}

std::vector<int64_t> group_ends(std::span<const int64_t> sizes) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const int64_t size : sizes) {
    if (size < 0) {
      throw core::Error(core::ErrorCode::kInvalidArgument, core::cat("grouped matmul: a group of ", size, " rows"));
    }
    ends.push_back(end += size);
  }
  return ends;
}

Tensor grouped_matmul(Context& context, const TensorView& x, const GroupedMatrices& weight,
                      std::span<const int64_t> ends, GroupedWeight layout, const TensorView* bias,
                      std::optional<kernels::Activation> activation) {
  const detail::OpScope scope(context, "ms::grouped_matmul", x, weight);
  const Sizes sizes = sizes_of(weight, layout);
  const int64_t k = sizes.k, n = sizes.n;
  detail::check_shape(x, {x.dim(0), k}, "grouped matmul: x");
  detail::check_dtype(weight.first, x.dtype(), "grouped matmul: weight");
  detail::check_ends(ends, sizes.groups, x.dim(0));
  if (bias != nullptr) {
    detail::check_shape(*bias, {sizes.groups, n}, "grouped matmul: bias");
    detail::check_dtype(*bias, x.dtype(), "grouped matmul: bias");
  }
  Tensor y(context.arena, x.dtype(), {x.dim(0), n}, core::MemoryTag::kAct);
  std::vector<GemmProblem> problems;
  detail::for_groups(ends, [&](int64_t group, int64_t first, int64_t rows) {
    if (rows == 0) return;
    GemmProblem problem;
    problem.transpose_b = layout == GroupedWeight::kOutIn;
    problem.m = rows, problem.n = n, problem.k = k;
    problem.a = at(x, first * k), problem.a_type = detail::gemm_type(x), problem.lda = k;
    problem.b = at(weight.first, group * weight.stride), problem.b_type = detail::gemm_type(weight.first);
    problem.ldb = problem.transpose_b ? k : n;
    problem.c = const_cast<void*>(at(y, first * n)), problem.c_type = detail::gemm_type(y), problem.ldc = n;
    if (bias != nullptr) problem.epilogue.bias = at(*bias, group * n);
    problem.epilogue.activation = activation;
    problems.push_back(problem);
  });
  run_all(context, scope, problems, x.size_bytes() + weight.size_bytes() + y.size_bytes());
  return y;
}

Tensor grouped_matmul_dgrad(Context& context, const TensorView& dy, const GroupedMatrices& weight,
                            std::span<const int64_t> ends, GroupedWeight layout) {
  const detail::OpScope scope(context, "ms::grouped_matmul_dgrad", dy, weight);
  const Sizes sizes = sizes_of(weight, layout);
  const int64_t k = sizes.k, n = sizes.n;
  detail::check_shape(dy, {dy.dim(0), n}, "grouped matmul: dy");
  detail::check_dtype(weight.first, dy.dtype(), "grouped matmul: weight");
  detail::check_ends(ends, sizes.groups, dy.dim(0));
  Tensor dx(context.arena, dy.dtype(), {dy.dim(0), k}, core::MemoryTag::kAct);
  std::vector<GemmProblem> problems;
  detail::for_groups(ends, [&](int64_t group, int64_t first, int64_t rows) {
    if (rows == 0) return;
    GemmProblem problem;
    problem.transpose_b = layout == GroupedWeight::kInOut;
    problem.m = rows, problem.n = k, problem.k = n;
    problem.a = at(dy, first * n), problem.a_type = detail::gemm_type(dy), problem.lda = n;
    problem.b = at(weight.first, group * weight.stride), problem.b_type = detail::gemm_type(weight.first);
    problem.ldb = problem.transpose_b ? n : k;
    problem.c = const_cast<void*>(at(dx, first * k)), problem.c_type = detail::gemm_type(dx), problem.ldc = k;
    problems.push_back(problem);
  });
  run_all(context, scope, problems, dy.size_bytes() + weight.size_bytes() + dx.size_bytes());
  return dx;
}

Tensor grouped_matmul_wgrad(Context& context, const TensorView& x, const TensorView& dy, std::span<const int64_t> ends,
                            GroupedWeight layout) {
  const detail::OpScope scope(context, "ms::grouped_matmul_wgrad", x, dy);
  check_tokens(x, dy);
  detail::check_dtype(dy, x.dtype(), "grouped matmul: dy");
  detail::check_ends(ends, static_cast<int64_t>(ends.size()), x.dim(0));
  Tensor dw(context.arena, x.dtype(), weight_shape(ends, x, dy, layout), core::MemoryTag::kGrad);
  run_all(context, scope, weight_gradients(x, dy, ends, dw, layout, false),
          x.size_bytes() + dy.size_bytes() + dw.size_bytes());
  return dw;
}

void grouped_matmul_add_fp32(Context& context, const TensorView& x, const TensorView& dy, std::span<const int64_t> ends,
                             const GroupedMatrices& main_grad, GroupedWeight layout) {
  const detail::OpScope scope(context, "ms::grouped_matmul_add_fp32", x, dy);
  check_tokens(x, dy);
  detail::check_ends(ends, static_cast<int64_t>(ends.size()), x.dim(0));
  const core::Dims shape = weight_shape(ends, x, dy, layout);
  MS_CHECK(main_grad.shape() == shape, "grouped matmul: main_grad is ", core::cat(main_grad.shape()), ", expected ",
           core::cat(shape));
  detail::check_dtype(main_grad.first, core::DType::kFp32, "grouped matmul: main_grad");
  const std::vector<GemmProblem> problems = weight_gradients(x, dy, ends, main_grad, layout, true);
  int64_t bytes = x.size_bytes() + dy.size_bytes();
  for (const GemmProblem& problem : problems) bytes += 2 * 4 * problem.m * problem.n;
  run_all(context, scope, problems, bytes);
}

}  // namespace ms::ops
