#include "train/ops/mm_all_reduce_add_rms_norm.h"

#include <algorithm>
#include <array>

#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/parts_under_way.h"
#include "train/ops/detail/typed.h"
#include "train/ops/elementwise.h"
#include "train/ops/matmul.h"
#include "train/ops/progress_in_kernels.h"
#include "train/ops/quantized_matmul.h"

namespace ms::ops {
namespace {

using core::DType;
using core::Tensor;
using core::TensorView;
using Options = MmAllReduceAddRmsNormOptions;

constexpr std::string_view kName = "npu_mm_all_reduce_add_rms_norm";

template <class... Parts>
[[noreturn]] void refuse_mm(const Parts&... parts) {
  detail::refuse_argument(kName, ": ", parts...);
}

bool is_integer_weight(const TensorView& x) { return x.dtype() == DType::kInt8 || packed_weights(x.dtype()) > 1; }

// The three kinds of products, of some rows at a time.
class RowProduct {
 public:
  RowProduct(Context& context, const TensorView& x1, const TensorView& x2, const TensorView& residual,
             const Options& options)
      : context_(context), x2_(x2), transpose_x2_(options.transpose_x2) {
    if (x1.shape().size() != 2 && x1.shape().size() != 3) refuse_mm("x1 is ", x1.shape(), ", expected 2 or 3 axes");
    if (x2.shape().size() != 2) refuse_mm("x2 is ", x2.shape(), ", expected [k, n]");
    k_ = x1.dim(-1), n_ = x2.dim(transpose_x2_ ? 0 : 1) * packed_weights(x2.dtype());
    x1_ = x1.reshaped({detail::num_rows(x1), k_});
    if (x2.dim(transpose_x2_ ? 1 : 0) != k_) refuse_mm("x1 is ", x1.shape(), ", x2 ", x2.shape());
    const bool full = x1.dtype() == DType::kInt8, weight_only = !full && is_integer_weight(x2);
    if (transpose_x2_ && (full || weight_only)) refuse_mm("a quantised x2 is [k, n]");
    if (weight_only != (options.antiquant_scale != nullptr)) {
      refuse_mm("antiquant_scale is for an int8 x2 with a real x1; they are ", core::dtype_name(x2.dtype()), " and ",
                core::dtype_name(x1.dtype()));
    }
    if (full != (options.dequant_scale != nullptr)) {
      refuse_mm("dequant_scale is for an int8 x1; it is ", core::dtype_name(x1.dtype()));
    }
    if (!weight_only && (options.antiquant_offset != nullptr || options.antiquant_group_size != 0)) {
      refuse_mm("antiquant_offset or antiquant_group_size without antiquant_scale");
    }
    if (!full && x1.dtype() != residual.dtype()) {
      refuse_mm("x1 is ", core::dtype_name(x1.dtype()), ", residual ", core::dtype_name(residual.dtype()));
    }
    if (!weight_only && x2.dtype() != x1.dtype()) {
      refuse_mm("x1 is ", core::dtype_name(x1.dtype()), ", x2 ", core::dtype_name(x2.dtype()));
    }
    take_bias(options.bias, full ? DType::kInt32 : residual.dtype());
    if (weight_only) dequantize_weight(options);
    if (full) take_dequant_scale(*options.dequant_scale);
  }

  int64_t rows() const { return x1_.dim(0); }
  int64_t columns() const { return n_; }

  // target [end - begin, n] = these rows of x1 x2 + bias.
  void into(int64_t begin, int64_t end, const TensorView& target) {
    const TensorView rows = x1_.rows(begin, end);
    if (scale_.defined()) {
      const std::array<int64_t, 1> ends = {end - begin};
      quant_gmm_into(context_, rows, x2_.reshaped({1, k_, n_}), scale_, ends, target, {.bias = bias()});
    } else {
      matmul_into(context_, rows, x2_, target, {.transpose_b = transpose_x2_, .bias = bias()});
    }
  }

 private:
  const TensorView* bias() const { return bias_.defined() ? &bias_ : nullptr; }

  void take_bias(const TensorView* bias, DType dtype) {
    if (bias == nullptr) return;
    if (bias->size() != n_ || bias->dtype() != dtype) {
      refuse_mm("bias is ", core::dtype_name(bias->dtype()), " ", bias->shape(), ", expected ", core::dtype_name(dtype),
                " [", n_, "]");
    }
    bias_ = bias->reshaped({1, n_});
  }

  // Once for all parts.
  void dequantize_weight(const Options& options) {
    const int64_t group = options.antiquant_group_size;
    if (group != 0 && (group < 32 || group % 32 != 0 || group >= k_)) {
      refuse_mm("antiquant_group_size ", group, "; it is a multiple of 32 below k, which is ", k_);
    }
    const TensorView& given = *options.antiquant_scale;
    const int64_t groups = group == 0 ? 1 : (k_ + group - 1) / group;
    const bool one = group == 0 && given.size() == 1;
    if (!one && (given.size() != groups * n_ || (group != 0 && given.shape() != core::Dims{groups, n_}))) {
      refuse_mm("antiquant_scale is ", given.shape(), " for x2 [", k_, ", ", n_, "] in ", groups, " groups");
    }
    core::Dims shape = {1};
    if (!one) shape = group == 0 ? core::Dims{1, n_} : core::Dims{1, groups, n_};
    TensorView offset;
    if (options.antiquant_offset != nullptr) {
      if (options.antiquant_offset->size() != given.size() || options.antiquant_offset->dtype() != given.dtype()) {
        refuse_mm("antiquant_offset is ", core::dtype_name(options.antiquant_offset->dtype()), " ",
                  options.antiquant_offset->shape(), ", antiquant_scale ", core::dtype_name(given.dtype()), " ",
                  given.shape());
      }
      offset = options.antiquant_offset->reshaped(shape);
    }
    const TensorView weight = x2_.reshaped({1, x2_.dim(0), x2_.dim(1)});
    real_ = dequantized_weight(context_, weight, {given.reshaped(shape), offset.defined() ? &offset : nullptr}, group);
    real_.reshape({k_, n_});
    x2_ = real_;
  }

  // fp32 [1, n].
  void take_dequant_scale(const TensorView& given) {
    const bool real = given.dtype() == DType::kFp32 || given.dtype() == DType::kBf16;
    if (!real || (given.size() != 1 && given.size() != n_)) {
      refuse_mm("dequant_scale is ", core::dtype_name(given.dtype()), " ", given.shape(),
                ", expected 1 or n numbers in fp32 or bf16");
    }
    scale_ = cast(context_, given, DType::kFp32);
    if (scale_.size() != n_) {
      const float value = scale_.data<float>()[0];
      scale_ = Tensor(context_.arena, DType::kFp32, {1, n_}, core::MemoryTag::kTmp);
      std::fill_n(scale_.data<float>(), n_, value);
    }
    scale_.reshape({1, n_});
  }

  Context& context_;
  TensorView x1_, x2_, bias_;
  Tensor real_, scale_;  // of a weight in integers; of sums in integers
  int64_t k_ = 0, n_ = 0;
  bool transpose_x2_;
};

// y = sum + residual, normed = rms_norm(y) * gamma. y may be sum or residual.
void add_rms_norm(Context& context, const TensorView& sum, const TensorView& residual, const TensorView& gamma,
                  double epsilon, const TensorView& y, const TensorView& normed) {
  const detail::OpScope scope(context, "ms::add_rms_norm", sum, residual);
  const int64_t h = y.dim(-1), rows = y.dim(0);
  const auto kernel = scope.kernel(-1, 4 * y.size_bytes());
  detail::with_type(y.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * h;
        kernels::add(sum.data<T>() + at, residual.data<T>() + at, h, y.data<T>() + at);
        kernels::rms_norm(y.data<T>() + at, gamma.data<T>(), 0.0F, 1, h, static_cast<float>(epsilon),
                          normed.data<T>() + at, nullptr);
      }
    });
  });
}

// The residual and gamma, checked; the residual as [rows, n].
TensorView residual_rows(const RowProduct& product, const TensorView& residual, const TensorView& gamma) {
  const int64_t n = product.columns();
  detail::require_summable(residual, core::cat(kName, ": residual"));
  if (residual.shape().size() < 2 || residual.dim(-1) != n || residual.size() != product.rows() * n) {
    refuse_mm("residual is ", residual.shape(), ", expected ", product.rows(), " rows of ", n);
  }
  if (gamma.shape() != core::Dims{n} || gamma.dtype() != residual.dtype()) {
    refuse_mm("gamma is ", core::dtype_name(gamma.dtype()), " ", gamma.shape(), ", expected ",
              core::dtype_name(residual.dtype()), " [", n, "]");
  }
  return residual.reshaped({product.rows(), n});
}

// y: where sum + residual goes; sum: where the product does, and its sum over ranks; either may be the other.
Tensor run_parts(Context& context, RowProduct& product, const TensorView& residual, const TensorView& gamma,
                 core::Communicator& hcom, const Options& options, const TensorView& sum, const TensorView& y) {
  Tensor normed(context.arena, y.dtype(), y.shape(), core::MemoryTag::kAct);
  if (y.size() == 0) return normed;
  const ProgressInKernels progress(hcom.endpoint());
  const detail::RowParts parts(product.rows(), options.comm_turn);
  detail::PartsUnderWay sums([&](int64_t part) {
    const auto [begin, end] = parts[part];
    add_rms_norm(context, sum.rows(begin, end), residual.rows(begin, end), gamma, options.epsilon, y.rows(begin, end),
                 normed.view().rows(begin, end));
  });
  for (int64_t part = 0; part < parts.size(); ++part) {
    const auto [begin, end] = parts[part];
    product.into(begin, end, sum.rows(begin, end));
    sums.add(hcom.iallreduce(sum.rows(begin, end)));
    if (part + 1 < parts.size()) sums.poll();
  }
  sums.finish_all();
  return normed;
}

void check_options(const Options& options) {
  detail::require_sum(options.reduce_op, kName);
  if (options.comm_turn < 0) refuse_mm("comm_turn ", options.comm_turn);
}

}  // namespace

MmAllReduceAddRmsNormResult npu_mm_all_reduce_add_rms_norm(Context& context, const TensorView& x1, const TensorView& x2,
                                                           const TensorView& residual, const TensorView& gamma,
                                                           core::Communicator& hcom, const Options& options) {
  const detail::OpScope scope(context, "ms::npu_mm_all_reduce_add_rms_norm", x1, x2);
  check_options(options);
  RowProduct product(context, x1, x2, residual, options);
  const TensorView rows = residual_rows(product, residual, gamma);
  Tensor y(context.arena, rows.dtype(), rows.shape(), core::MemoryTag::kAct);
  Tensor normed = run_parts(context, product, rows, gamma, hcom, options, y, y);
  y.reshape(residual.shape());
  normed.reshape(residual.shape());
  return {std::move(y), std::move(normed)};
}

Tensor npu_mm_all_reduce_add_rms_norm_(Context& context, const TensorView& x1, const TensorView& x2,
                                       const TensorView& residual, const TensorView& gamma, core::Communicator& hcom,
                                       const Options& options) {
  const detail::OpScope scope(context, "ms::npu_mm_all_reduce_add_rms_norm_", x1, x2);
  check_options(options);
  RowProduct product(context, x1, x2, residual, options);
  const TensorView rows = residual_rows(product, residual, gamma);
  const Tensor sum(context.arena, rows.dtype(), rows.shape(), core::MemoryTag::kAct);
  Tensor normed = run_parts(context, product, rows, gamma, hcom, options, sum, rows);
  normed.reshape(residual.shape());
  return normed;
}

}  // namespace ms::ops
