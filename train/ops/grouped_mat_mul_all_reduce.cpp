#include "train/ops/grouped_mat_mul_all_reduce.h"

#include <string>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/parts_under_way.h"
#include "train/ops/elementwise.h"
#include "train/ops/matmul.h"
#include "train/ops/progress_in_kernels.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;
using Options = GroupedMatMulAllReduceOptions;

constexpr std::string_view kGroupedName = "npu_grouped_mat_mul_all_reduce";
constexpr size_t kMaxGroups = 64;  // as in MindSpeed

template <class... Parts>
[[noreturn]] void refuse_grouped(const Parts&... parts) {
  detail::refuse_argument(kGroupedName, ": ", parts...);
}

bool has_one_x(const Options& options) { return (options.split_item & 1) != 0; }
bool has_one_y(const Options& options) { return (options.split_item & 2) != 0; }

void check_lists(std::span<const TensorView> x, std::span<const TensorView> weight, const Options& options) {
  detail::require_sum(options.reduce_op, kGroupedName);
  if (options.comm_turn < 0) refuse_grouped("comm_turn ", options.comm_turn);
  if (options.split_item < 0 || options.split_item > 3) {
    refuse_grouped("split_item ", options.split_item, "; it may be 0 to 3");
  }
  if (weight.empty() || weight.size() > kMaxGroups) {
    refuse_grouped(weight.size(), " weights; there may be 1 to ", kMaxGroups);
  }
  const size_t tensors = has_one_x(options) ? 1 : weight.size(), ends = has_one_x(options) ? weight.size() : 0;
  if (x.size() != tensors) {
    refuse_grouped(x.size(), " tensors x for ", weight.size(), " weights and split_item ", options.split_item);
  }
  if (options.group_list.size() != ends) {
    refuse_grouped("group_list ", options.group_list, " for ", weight.size(), " weights and split_item ",
                   options.split_item);
  }
  if (!options.bias.empty() && options.bias.size() != weight.size()) {
    refuse_grouped(options.bias.size(), " biases for ", weight.size(), " weights");
  }
}

// x of each group.
std::vector<TensorView> rows_of_groups(std::span<const TensorView> x, const Options& options) {
  for (const TensorView& given : x) {
    if (given.shape().size() != 2) refuse_grouped("x is ", given.shape(), ", expected two axes");
    detail::require_summable(given, std::string(kGroupedName) + ": x");
  }
  if (!has_one_x(options)) return {x.begin(), x.end()};
  std::vector<TensorView> rows;
  int64_t begin = 0;
  for (const int64_t end : options.group_list) {
    if (end < begin || end > x[0].dim(0)) break;
    rows.push_back(x[0].rows(begin, end));
    begin = end;
  }
  if (rows.size() != options.group_list.size() || begin != x[0].dim(0)) {
    refuse_grouped("group_list ", options.group_list, " for ", x[0].dim(0), " rows; it has the groups' ends");
  }
  return rows;
}

void check_groups(std::span<const TensorView> x, std::span<const TensorView> weight, const Options& options) {
  for (size_t i = 0; i < weight.size(); ++i) {
    if (weight[i].shape().size() != 2 || weight[i].dim(0) != x[i].dim(1)) {
      refuse_grouped("group ", i, ": x is ", x[i].shape(), ", weight ", weight[i].shape());
    }
    if (weight[i].dtype() != x[0].dtype() || x[i].dtype() != x[0].dtype()) {
      refuse_grouped("group ", i, ": x is ", core::dtype_name(x[i].dtype()), ", weight ",
                     core::dtype_name(weight[i].dtype()), ", expected ", core::dtype_name(x[0].dtype()));
    }
    if (has_one_y(options) && weight[i].dim(1) != weight[0].dim(1)) {
      refuse_grouped("group ", i, ": weight is ", weight[i].shape(), ", but y, one tensor, has ", weight[0].dim(1),
                     " columns");
    }
    if (options.bias.empty()) continue;
    const TensorView& bias = options.bias[i];
    if (bias.size() != weight[i].dim(1) || (bias.dtype() != x[0].dtype() && bias.dtype() != core::DType::kFp32)) {
      refuse_grouped("group ", i, ": bias is ", core::dtype_name(bias.dtype()), " ", bias.shape(), ", expected [",
                     weight[i].dim(1), "] in x's dtype or fp32");
    }
  }
}

// What this rank adds of a bias, in the results' dtype.
Tensor share_of_bias(Context& context, const TensorView& bias, core::DType dtype, int ranks) {
  Tensor share = cast(context, bias, core::DType::kFp32);
  scale_inplace(context, share, 1.0F / static_cast<float>(ranks));
  return dtype == core::DType::kFp32 ? std::move(share) : cast(context, share, dtype);
}

}  // namespace

std::vector<Tensor> npu_grouped_mat_mul_all_reduce(Context& context, std::span<const TensorView> x,
                                                   std::span<const TensorView> weight, core::Communicator& hcomm,
                                                   const Options& options) {
  const detail::OpScope scope(context, "ms::npu_grouped_mat_mul_all_reduce");
  check_lists(x, weight, options);
  const std::vector<TensorView> rows = rows_of_groups(x, options);
  check_groups(rows, weight, options);
  const core::DType dtype = x[0].dtype();
  std::vector<Tensor> y;
  int64_t all_rows = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    all_rows += rows[i].dim(0);
    if (has_one_y(options)) continue;
    y.emplace_back(context.arena, dtype, core::Dims{rows[i].dim(0), weight[i].dim(1)}, core::MemoryTag::kAct);
  }
  if (has_one_y(options)) {
    y.emplace_back(context.arena, dtype, core::Dims{all_rows, weight[0].dim(1)}, core::MemoryTag::kAct);
  }
  const ProgressInKernels progress(hcomm.endpoint());
  detail::PartsUnderWay sums;
  int64_t first = 0;  // row in y, if it is one tensor
  for (size_t i = 0; i < weight.size(); ++i) {
    const int64_t group_rows = rows[i].dim(0);
    const TensorView target = has_one_y(options) ? y[0].view().rows(first, first + group_rows) : y[i].view();
    first += group_rows;
    if (target.size() == 0) continue;
    Tensor bias;
    if (!options.bias.empty()) bias = share_of_bias(context, options.bias[i], dtype, hcomm.size());
    const detail::RowParts parts(group_rows, options.comm_turn);
    for (int64_t part = 0; part < parts.size(); ++part) {
      const auto [begin, end] = parts[part];
      matmul_into(context, rows[i].rows(begin, end), weight[i], target.rows(begin, end),
                  {.bias = bias.defined() ? &bias.view() : nullptr});
      sums.add(hcomm.iallreduce(target.rows(begin, end)));
      sums.poll();
    }
  }
  sums.finish_all();
  return y;
}

}  // namespace ms::ops
