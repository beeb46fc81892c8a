#include "train/ops/lcal_coc.h"

#include <cstring>
#include <string>
#include <string_view>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/parts_under_way.h"
#include "train/ops/detail/row_gather.h"
#include "train/ops/linear.h"
#include "train/ops/matmul.h"
#include "train/ops/progress_in_kernels.h"

namespace ms::ops::coc_ops {
namespace {

using core::Communicator;
using core::Tensor;
using core::TensorView;
using detail::refuse_argument;

// The product of an operator; its arguments are checked.
class CocProduct {
 public:
  CocProduct(std::string_view name, const TensorView& input1, const TensorView& input2, const CocOptions& options)
      : name_(name), input2_(input2) {
    if (input1.shape().size() != 2 || input2.shape().size() != 2) {
      refuse_argument(name, ": input1 is ", input1.shape(), ", input2 ", input2.shape(), ", expected two axes each");
    }
    const int64_t k = input1.dim(1);
    transpose_ = options.transpose_input2.value_or(input2.dim(0) != k);
    n_ = input2.dim(transpose_ ? 0 : 1);
    if (input2.dim(transpose_ ? 1 : 0) != k) {
      refuse_argument(name, ": input1 is ", input1.shape(), ", input2 ", input2.shape(),
                      transpose_ ? ", transposed" : "");
    }
    detail::require_summable(input1, std::string(name) + ": input1");
    require_dtype(input2, "input2", input1);
    if (options.parts < 0) refuse_argument(name, ": ", options.parts, " parts");
    if (options.bias == nullptr) return;
    require_dtype(*options.bias, "bias", input1);
    if (options.bias->size() != n_)
      refuse_argument(name, ": bias is ", options.bias->shape(), ", expected [1, ", n_, "]");
    bias_ = options.bias->reshaped({n_});
  }

  int64_t columns() const { return n_; }
  const TensorView* bias() const { return bias_.defined() ? &bias_ : nullptr; }

  // An output of `rows` rows, and columns() or k columns.
  void require_output(const TensorView& output, const char* what, int64_t rows, int64_t columns,
                      const TensorView& input1) const {
    require_dtype(output, what, input1);
    if (output.shape() == core::Dims{rows, columns}) return;
    refuse_argument(name_, ": ", what, " is ", output.shape(), ", expected [", rows, ", ", columns, "]");
  }
  // Of `rows`, the block of one of so many ranks.
  int64_t block_of(int64_t rows, int64_t ranks) const {
    if (rows % ranks != 0) refuse_argument(name_, ": ", rows, " rows for ", ranks, " ranks");
    return rows / ranks;
  }

  void into(Context& context, const TensorView& rows, const TensorView& target, bool with_bias) const {
    matmul_into(context, rows, input2_, target, {.transpose_b = transpose_, .bias = with_bias ? bias() : nullptr});
  }
  void add_bias(Context& context, const TensorView& rows) const {
    if (bias_.defined() && rows.size() > 0) add_bias_inplace(context, rows, bias_);
  }

 private:
  void require_dtype(const TensorView& x, const char* what, const TensorView& input1) const {
    if (x.dtype() == input1.dtype()) return;
    refuse_argument(name_, ": ", what, " is ", core::dtype_name(x.dtype()), ", input1 ",
                    core::dtype_name(input1.dtype()));
  }

  std::string_view name_;
  TensorView input2_, bias_;
  bool transpose_ = false;
  int64_t n_ = 0;
};

void copy(const TensorView& from, const TensorView& to) {
  if (from.size() > 0) std::memcpy(to.bytes(), from.bytes(), static_cast<size_t>(from.size_bytes()));
}

// output = gathered input2 + bias; gathered goes to comm_output, too, if it is not null. This rank's own rows are
// multiplied first, while the others' are on their way.
void gather_and_multiply(Context& context, const CocProduct& product, const TensorView& input1,
                         const TensorView& output, const TensorView* comm_output, Communicator& comm, int64_t asked) {
  const int64_t each = input1.dim(0);
  const ProgressInKernels progress(comm.endpoint());
  const detail::RowParts parts(each, asked);
  detail::RowGather gather(context, comm, input1, parts, comm_output);
  if (gather.has_filled_target()) comm_output = nullptr;
  const auto multiply = [&](const TensorView& rows, int64_t first) {
    const int64_t end = first + rows.dim(0);
    if (comm_output != nullptr) copy(rows, comm_output->rows(first, end));
    product.into(context, rows, output.rows(first, end), true);
  };
  gather.for_rows(comm.rank() * each, (comm.rank() + 1) * each, multiply);
  for (int64_t part = 0; part < parts.size(); ++part) {
    for (int64_t rank = 0; rank < comm.size(); ++rank) {
      if (rank == comm.rank()) continue;
      gather.for_rows(rank * each + parts[part].begin, rank * each + parts[part].end, multiply);
    }
  }
}

// output = this rank's block of the sum of the product of all rows, + bias. compute(begin, end, target) fills target
// with these rows of the product.
template <class Compute>
void multiply_and_scatter(Context& context, const CocProduct& product, const TensorView& output, Communicator& comm,
                          int64_t asked, const Compute& compute) {
  const int64_t each = output.dim(0), ranks = comm.size();
  if (output.size() == 0) return;
  const ProgressInKernels progress(comm.endpoint());
  const detail::RowParts parts(each, asked);
  // Of a part, every rank's block of rows.
  const Tensor partial(context.arena, output.dtype(), {ranks * each, output.dim(1)}, core::MemoryTag::kAct);
  detail::PartsUnderWay sums(
      [&](int64_t part) { product.add_bias(context, output.rows(parts[part].begin, parts[part].end)); });
  for (int64_t part = 0; part < parts.size(); ++part) {
    const auto [begin, end] = parts[part];
    const TensorView blocks = partial.view().rows(ranks * begin, ranks * end);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      compute(rank * each + begin, rank * each + end, blocks.rows(rank * (end - begin), (rank + 1) * (end - begin)));
    }
    sums.add(comm.ireduce_scatter(blocks, output.rows(begin, end)));
    if (part + 1 < parts.size()) sums.poll();
  }
  sums.finish_all();
}

}  // namespace

void pure_matmul(Context& context, const TensorView& input1, const TensorView& input2, const TensorView& output,
                 const CocOptions& options) {
  const detail::OpScope scope(context, "ms::pure_matmul", input1, input2);
  const CocProduct product("pure_matmul", input1, input2, options);
  product.require_output(output, "output", input1.dim(0), product.columns(), input1);
  product.into(context, input1, output, true);
}

void matmul_all_reduce(Context& context, const TensorView& input1, const TensorView& input2, const TensorView& output,
                       Communicator& comm, const CocOptions& options) {
  const detail::OpScope scope(context, "ms::matmul_all_reduce", input1, input2);
  const CocProduct product("matmul_all_reduce", input1, input2, options);
  product.require_output(output, "output", input1.dim(0), product.columns(), input1);
  if (output.size() == 0) return;
  const ProgressInKernels progress(comm.endpoint());
  const detail::RowParts parts(input1.dim(0), options.parts);
  detail::PartsUnderWay sums(
      [&](int64_t part) { product.add_bias(context, output.rows(parts[part].begin, parts[part].end)); });
  for (int64_t part = 0; part < parts.size(); ++part) {
    const auto [begin, end] = parts[part];
    product.into(context, input1.rows(begin, end), output.rows(begin, end), false);
    sums.add(comm.iallreduce(output.rows(begin, end)));
    if (part + 1 < parts.size()) sums.poll();
  }
  sums.finish_all();
}

void all_gather_matmul(Context& context, const TensorView& input1, const TensorView& input2, const TensorView& output,
                       Communicator& comm, const CocOptions& options) {
  const detail::OpScope scope(context, "ms::all_gather_matmul", input1, input2);
  const CocProduct product("all_gather_matmul", input1, input2, options);
  product.require_output(output, "output", comm.size() * input1.dim(0), product.columns(), input1);
  gather_and_multiply(context, product, input1, output, nullptr, comm, options.parts);
}

void all_gather_matmul_v2(Context& context, const TensorView& input1, const TensorView& input2,
                          const TensorView& output, const TensorView& comm_output, Communicator& comm,
                          const CocOptions& options) {
  const detail::OpScope scope(context, "ms::all_gather_matmul_v2", input1, input2);
  const CocProduct product("all_gather_matmul_v2", input1, input2, options);
  const int64_t rows = comm.size() * input1.dim(0);
  product.require_output(output, "output", rows, product.columns(), input1);
  product.require_output(comm_output, "comm_output", rows, input1.dim(1), input1);
  gather_and_multiply(context, product, input1, output, &comm_output, comm, options.parts);
}

void matmul_reduce_scatter(Context& context, const TensorView& input1, const TensorView& input2,
                           const TensorView& output, Communicator& comm, const CocOptions& options) {
  const detail::OpScope scope(context, "ms::matmul_reduce_scatter", input1, input2);
  const CocProduct product("matmul_reduce_scatter", input1, input2, options);
  product.require_output(output, "output", product.block_of(input1.dim(0), comm.size()), product.columns(), input1);
  multiply_and_scatter(context, product, output, comm, options.parts,
                       [&](int64_t begin, int64_t end, const TensorView& target) {
                         product.into(context, input1.rows(begin, end), target, false);
                       });
}

void all_gather_matmul_reduce_scatter(Context& context, const TensorView& input1, const TensorView& input2,
                                      const TensorView& output, const TP2DConfig& config, const CocOptions& options) {
  const detail::OpScope scope(context, "ms::all_gather_matmul_reduce_scatter", input1, input2);
  const CocProduct product("all_gather_matmul_reduce_scatter", input1, input2, options);
  const int64_t rows = config.ag.size() * input1.dim(0);
  product.require_output(output, "output", product.block_of(rows, config.rs.size()), product.columns(), input1);
  detail::RowGather gather(context, config.ag, input1, detail::RowParts(input1.dim(0), options.parts));
  multiply_and_scatter(context, product, output, config.rs, options.parts,
                       [&](int64_t begin, int64_t end, const TensorView& target) {
                         gather.for_rows(begin, end, [&](const TensorView& piece, int64_t first) {
                           const int64_t at = first - begin;
                           product.into(context, piece, target.rows(at, at + piece.dim(0)), false);
                         });
                       });
}

}  // namespace ms::ops::coc_ops
