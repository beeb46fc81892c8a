#include "train/ops/quantized_matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/convert.h"
#include "kernels/gemm/int8_gemm.h"
#include "kernels/quantize.h"
#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/groups.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/elementwise.h"

namespace ms::ops {
namespace {

using core::DType;
using core::Tensor;
using core::TensorView;

[[noreturn]] void refuse(const std::string& why) {
  throw core::Error(core::ErrorCode::kInvalidArgument, "quantised matmul: " + why);
}

const int8_t* bytes_of(const TensorView& x) { return reinterpret_cast<const int8_t*>(x.bytes()); }

struct Sizes {
  int64_t m, k, n, groups;
};

Sizes check(const TensorView& x, const TensorView& weight, std::span<const int64_t> ends) {
  MS_CHECK(x.shape().size() == 2 && weight.shape().size() == 3 && weight.dim(1) == x.dim(1), "quantised matmul: x is ",
           core::cat(x.shape()), ", weight ", core::cat(weight.shape()));
  detail::check_ends(ends, weight.dim(0), x.dim(0));
  return {x.dim(0), x.dim(1), weight.dim(2) * packed_weights(weight.dtype()), weight.dim(0)};
}

// x as fp32; `holder` owns the copy if one had to be made.
TensorView as_fp32(Context& context, const TensorView& x, Tensor& holder) {
  if (x.dtype() == DType::kFp32) return x;
  holder = cast(context, x, DType::kFp32);
  return holder;
}

// Converts the integer weights of a group to real rows.
class RealRows {
 public:
  // slice: as of dequantized_weight.
  RealRows(Context& context, const TensorView& weight, const Antiquant& antiquant, const Sizes& sizes,
           int64_t slice = 0)
      : sizes_(sizes), weight_(weight), scale_(as_fp32(context, antiquant.scale, scale_holder_)) {
    const core::Dims& shape = scale_.shape();
    const bool fits =
        !shape.empty() && shape.size() <= 3 && shape[0] == sizes.groups &&
        (shape.size() == 1 || shape.back() == sizes.n) &&
        (shape.size() < 3 ||
         (shape[1] > 0 && (slice == 0 ? sizes.k % shape[1] == 0 : (sizes.k + slice - 1) / slice == shape[1])));
    if (!fits)
      refuse(core::cat("an antiquant scale ", core::cat(shape), " for weights of ", sizes.groups, " x ", sizes.k, " x ",
                       sizes.n));
    if (antiquant.offset != nullptr) {
      detail::check_shape(*antiquant.offset, shape, "weight_quant_gmm: antiquant offset");
      detail::check_dtype(*antiquant.offset, antiquant.scale.dtype(), "weight_quant_gmm: antiquant offset");
      offset_ = as_fp32(context, *antiquant.offset, offset_holder_);
    }
    slices_ = shape.size() == 3 ? shape[1] : 1;
    slice_ = slice != 0 ? slice : std::max<int64_t>(sizes.k / slices_, 1);
  }

  // Converts rows [begin, end) of k of a group to real rows of n.
  void make(int64_t group, int64_t begin, int64_t end, float* target) const {
    const int64_t n = sizes_.n, row_bytes = weight_.dim(2) * core::size_of(weight_.dtype());
    const bool packed = packed_weights(weight_.dtype()) > 1;
    std::vector<int8_t> unpacked(static_cast<size_t>(packed ? n : 0));
    std::vector<float> scale, offset;  // of a whole matrix
    const float *scales = scale_.data<float>(), *offsets = offset_.defined() ? offset_.data<float>() : nullptr;
    if (scale_.shape().size() == 1) {
      scale.assign(static_cast<size_t>(n), scales[group]);
      if (offsets != nullptr) offset.assign(static_cast<size_t>(n), offsets[group]);
    }
    for (int64_t p = begin; p < end; ++p) {
      const int8_t* row = bytes_of(weight_) + (group * sizes_.k + p) * row_bytes;
      if (packed) {
        kernels::unpack_int4(reinterpret_cast<const uint8_t*>(row), n, unpacked.data());
        row = unpacked.data();
      }
      const int64_t at = (group * slices_ + p / slice_) * n;
      const float* row_scale = scale.empty() ? scales + at : scale.data();
      const float* row_offset = offsets == nullptr ? nullptr : scale.empty() ? offsets + at : offset.data();
      kernels::dequantize(row, row_scale, row_offset, n, target + p * n);
    }
  }

 private:
  Sizes sizes_;
  TensorView weight_;
  Tensor scale_holder_, offset_holder_;
  TensorView scale_, offset_;
  int64_t slices_, slice_;  // of k, each with scales of its own: how many, and the length of all but the last
};

// Stores a row of fp32 values in the output's dtype.
void store_row(const float* row, int64_t n, const TensorView& y, int64_t at) {
  switch (y.dtype()) {
    case DType::kInt8:
      return kernels::quantize(row, nullptr, nullptr, n, reinterpret_cast<int8_t*>(y.bytes()) + at);
    case DType::kBf16:
      return kernels::convert(row, y.data<kernels::bf16>() + at, n);
    case DType::kFp16:
      return kernels::convert(row, y.data<kernels::fp16>() + at, n);
    default:
      std::copy_n(row, n, y.data<float>() + at);
  }
}

}  // namespace

int64_t packed_weights(DType dtype) { return dtype == DType::kUInt8 ? 2 : dtype == DType::kInt32 ? 8 : 1; }

Tensor quant_gmm(Context& context, const TensorView& x, const TensorView& weight, const TensorView& scale,
                 std::span<const int64_t> ends, const QuantGmmParams& params) {
  const Sizes sizes = check(x, weight, ends);
  Tensor y(context.arena, params.output_dtype, {sizes.m, sizes.n}, core::MemoryTag::kAct);
  quant_gmm_into(context, x, weight, scale, ends, y, params);
  return y;
}

void quant_gmm_into(Context& context, const TensorView& x, const TensorView& weight, const TensorView& scale,
                    std::span<const int64_t> ends, const TensorView& y, const QuantGmmParams& params) {
  const detail::OpScope scope(context, "ms::quant_gmm", x, weight);
  const Sizes sizes = check(x, weight, ends);
  const int64_t m = sizes.m, k = sizes.k, n = sizes.n;
  detail::check_dtype(x, DType::kInt8, "quant_gmm: x");
  detail::check_dtype(weight, DType::kInt8, "quant_gmm: weight");
  detail::check_shape(scale, {sizes.groups, n}, "quant_gmm: scale");
  detail::check_dtype(scale, DType::kFp32, "quant_gmm: scale");
  if (params.per_token_scale != nullptr) {
    detail::check_size(*params.per_token_scale, m, "quant_gmm: per_token_scale");
    detail::check_dtype(*params.per_token_scale, DType::kFp32, "quant_gmm: per_token_scale");
  }
  if (params.bias != nullptr) {
    detail::check_shape(*params.bias, {sizes.groups, n}, "quant_gmm: bias");
    detail::check_dtype(*params.bias, DType::kInt32, "quant_gmm: bias");
  }
  const DType out = y.dtype();
  if (k > kernels::kMaxInt8Products) refuse(core::cat(k, " products do not fit 32 bits"));
  if (out == DType::kInt8 && (params.per_token_scale != nullptr || params.activation)) {
    refuse("an int8 output takes neither a per_token_scale nor an activation");
  }
  if (out != DType::kFp32 && out != DType::kBf16 && out != DType::kFp16 && out != DType::kInt8) {
    refuse(core::cat("no output in ", core::dtype_name(out)));
  }
  detail::check_shape(y, {m, n}, "quant_gmm: y");
  const Tensor sums(context.arena, DType::kInt32, {m, n}, core::MemoryTag::kTmp);
  const int64_t flops = 2 * m * n * k;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, x.size_bytes() + weight.size_bytes() + y.size_bytes());
  // Threads are split over the columns of every group, so that they have equal work whatever the groups' sizes.
  context.pool.parallel_for(n, 64, [&](int64_t begin, int64_t end) {
    detail::for_groups(ends, [&](int64_t group, int64_t first, int64_t rows) {
      kernels::int8_gemm(rows, end - begin, k, bytes_of(x) + first * k, k, bytes_of(weight) + group * k * n + begin, n,
                         sums.data<int32_t>() + first * n + begin, n);
    });
  });
  context.pool.parallel_for(m, detail::row_grain(n), [&](int64_t begin, int64_t end) {
    std::vector<float> real(static_cast<size_t>(n));
    detail::for_rows(ends, begin, end, [&](int64_t row, int64_t group) {
      kernels::dequantize_sums(
          sums.data<int32_t>() + row * n, params.bias == nullptr ? nullptr : params.bias->data<int32_t>() + group * n,
          scale.data<float>() + group * n,
          params.per_token_scale == nullptr ? 1.0F : params.per_token_scale->data<float>()[row], n, real.data());
      if (params.activation) kernels::activation(*params.activation, real.data(), n, real.data());
      store_row(real.data(), n, y, row * n);
    });
  });
}

Tensor weight_quant_gmm(Context& context, const TensorView& x, const TensorView& weight, const Antiquant& antiquant,
                        std::span<const int64_t> ends, const TensorView* bias,
                        std::optional<kernels::Activation> activation) {
  const detail::OpScope scope(context, "ms::weight_quant_gmm", x, weight);
  const Sizes sizes = check(x, weight, ends);
  const int64_t k = sizes.k, n = sizes.n;
  MS_CHECK(weight.dtype() == DType::kInt8 || packed_weights(weight.dtype()) > 1, "weight_quant_gmm: weight is ",
           core::dtype_name(weight.dtype()));
  const RealRows real_rows(context, weight, antiquant, sizes);
  if (bias != nullptr) {
    detail::check_shape(*bias, {sizes.groups, n}, "weight_quant_gmm: bias");
    detail::check_dtype(*bias, x.dtype(), "weight_quant_gmm: bias");
  }
  Tensor y(context.arena, x.dtype(), {sizes.m, n}, core::MemoryTag::kAct);
  const Tensor real(context.arena, DType::kFp32, {k, n}, core::MemoryTag::kTmp);
  const int64_t flops = 2 * sizes.m * n * k;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, x.size_bytes() + weight.size_bytes() + y.size_bytes());
  detail::for_groups(ends, [&](int64_t group, int64_t first, int64_t rows) {
    if (rows == 0) return;
    context.pool.parallel_for(k, detail::row_grain(n), [&](int64_t begin, int64_t end) {
      real_rows.make(group, begin, end, real.data<float>());
    });
    kernels::GemmProblem problem;
    problem.m = rows, problem.n = n, problem.k = k;
    problem.a = x.bytes() + first * k * core::size_of(x.dtype()), problem.a_type = detail::gemm_type(x),
    problem.lda = k;
    problem.b = real.bytes(), problem.ldb = n;
    problem.c = y.bytes() + first * n * core::size_of(y.dtype()), problem.c_type = detail::gemm_type(y),
    problem.ldc = n;
    problem.deterministic = context.deterministic;
    if (bias != nullptr) problem.epilogue.bias = bias->bytes() + group * n * core::size_of(bias->dtype());
    problem.epilogue.activation = activation;
    context.pool.parallel_for(n, detail::kColumnGrain, [&](int64_t begin, int64_t end) {
      kernels::gemm(detail::columns_of(problem, begin, end));
    });
  });
  return y;
}

Tensor dequantized_weight(Context& context, const TensorView& weight, const Antiquant& antiquant, int64_t slice) {
  const detail::OpScope scope(context, "ms::dequantized_weight", weight, antiquant.scale);
  MS_CHECK(weight.shape().size() == 3 && (weight.dtype() == DType::kInt8 || packed_weights(weight.dtype()) > 1),
           "dequantized_weight: weight is ", core::dtype_name(weight.dtype()), " ", core::cat(weight.shape()));
  const Sizes sizes{0, weight.dim(1), weight.dim(2) * packed_weights(weight.dtype()), weight.dim(0)};
  const RealRows real_rows(context, weight, antiquant, sizes, slice);
  Tensor real(context.arena, DType::kFp32, {sizes.groups, sizes.k, sizes.n}, core::MemoryTag::kTmp);
  const auto kernel = scope.kernel(-1, weight.size_bytes() + real.size_bytes());
  for (int64_t group = 0; group < sizes.groups; ++group) {
    context.pool.parallel_for(sizes.k, detail::row_grain(sizes.n), [&](int64_t begin, int64_t end) {
      real_rows.make(group, begin, end, real.data<float>() + group * sizes.k * sizes.n);
    });
  }
  return real;
}

}  // namespace ms::ops
