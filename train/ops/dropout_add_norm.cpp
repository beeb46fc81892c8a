#include "train/ops/dropout_add_norm.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/dropout_add.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "kernels/rows.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/sum_over_rows.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

// A row as fp32: the row itself, or converted into the buffer.
template <class T>
const float* as_fp32(const T* row, int64_t h, std::vector<float>& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return row;
  } else {
    kernels::convert(row, buffer.data(), h);
    return buffer.data();
  }
}

// A parameter as fp32; empty if it is null.
std::vector<float> parameter(const TensorView* x) {
  if (x == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(x->size()));
  detail::with_type(x->dtype(), [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) values[i] = kernels::to_float(x->data<T>()[i]);
  });
  return values;
}
const float* or_null(const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); }

// Elements of z per pass, so that z is still in L1 or L2 when it is read again.
constexpr int64_t kElementsAtOnce = 4096;

// What all rows of a call share, with checked shapes.
struct Call {
  int64_t rows, batch, h;
  core::DType z_dtype;
  std::vector<float> weight, bias, rowscale, layerscale;  // empty: none

  float of_row(int64_t row) const { return rowscale.empty() ? 1.0F : rowscale[static_cast<size_t>(row)]; }
};

void check_parameter(const TensorView* x, int64_t size, const TensorView& x0, const char* what) {
  if (x == nullptr) return;
  detail::check_size(*x, size, what);
  detail::check_dtype(*x, x0.dtype(), what);
}

Call check(const DropoutAddNormInputs& inputs, const DropoutAddNormParams& params) {
  const TensorView& x0 = inputs.x0;
  MS_CHECK(x0.shape().size() == 3, "dropout_add_norm: x0 is ", core::cat(x0.shape()), ", expected [s, b, h]");
  const int64_t rows = detail::num_rows(x0), h = x0.dim(2);
  check_parameter(&inputs.weight, h, x0, "dropout_add_norm: weight");
  check_parameter(inputs.bias, h, x0, "dropout_add_norm: bias");
  check_parameter(inputs.rowscale, rows, x0, "dropout_add_norm: rowscale");
  check_parameter(inputs.layerscale, h, x0, "dropout_add_norm: layerscale");
  core::DType z_dtype = params.residual_in_fp32 ? core::DType::kFp32 : x0.dtype();
  if (inputs.residual != nullptr) {
    detail::check_shape(*inputs.residual, x0.shape(), "dropout_add_norm: residual");
    if (params.residual_in_fp32 && inputs.residual->dtype() != core::DType::kFp32) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        core::cat("dropout_add_norm: residual_in_fp32, but the residual is ",
                                  core::dtype_name(inputs.residual->dtype())));
    }
    z_dtype = inputs.residual->dtype();
    MS_CHECK(z_dtype == x0.dtype() || z_dtype == core::DType::kFp32, "dropout_add_norm: residual is ",
             core::dtype_name(z_dtype), ", x0 ", core::dtype_name(x0.dtype()));
  }
  MS_CHECK(params.dropout.probability == 0 || static_cast<int64_t>(params.samples.size()) == x0.dim(1),
           "dropout_add_norm: ", params.samples.size(), " samples for ", core::cat(x0.shape()));
  return {rows,
          x0.dim(1),
          h,
          z_dtype,
          parameter(&inputs.weight),
          parameter(inputs.bias),
          parameter(inputs.rowscale),
          parameter(inputs.layerscale)};
}

// The dropout factors of a row, or null without dropout.
const float* factors_of(const Call& call, const DropoutAddNormParams& params, int64_t row, std::vector<float>& buffer) {
  if (params.dropout.probability == 0) return nullptr;
  kernels::dropout_factors(params.dropout, params.samples[static_cast<size_t>(row % call.batch)],
                           params.first_position + row / call.batch, 0, call.h, buffer.data());
  return buffer.data();
}

// Calls body<T, Z> for the dtypes of x0 and z.
template <class Body>
void with_types(core::DType x, core::DType z, const Body& body) {
  detail::with_type(x, [&]<class T>() {
    if (z == x) return body.template operator()<T, T>();
    body.template operator()<T, float>();
  });
}

template <class T>
void store_fp32(const float* row, int64_t h, T* target, kernels::Stores stores) {
  if constexpr (std::is_same_v<T, float>) {
    kernels::copy_row(row, h * static_cast<int64_t>(sizeof(float)), target, stores);
  } else {
    kernels::convert(row, target, h, stores);
  }
}

}  // namespace

DropoutAddNormResult dropout_add_norm(Context& context, const DropoutAddNormInputs& inputs,
                                      const DropoutAddNormParams& params) {
  const TensorView& x0 = inputs.x0;
  const bool layer = params.kind == NormKind::kLayerNorm;
  const detail::OpScope scope(context, layer ? "ms::dropout_add_layer_norm" : "ms::dropout_add_rms_norm", x0);
  const Call call = check(inputs, params);
  const int64_t rows = call.rows, h = call.h;
  const auto make = [&](core::DType dtype, core::Dims shape) {
    return Tensor(context.arena, dtype, std::move(shape), core::MemoryTag::kAct);
  };
  DropoutAddNormResult result{make(x0.dtype(), x0.shape()), make(call.z_dtype, x0.shape()), {}, {}};
  result.statistics.rstd = make(core::DType::kFp32, {rows});
  if (layer) result.statistics.mean = make(core::DType::kFp32, {rows});
  if (params.return_dropout_mask) result.mask = make(core::DType::kUInt8, x0.shape());
  const int64_t read = x0.size_bytes() + (inputs.residual != nullptr ? inputs.residual->size_bytes() : 0);
  const auto kernel = scope.kernel(-1, read + result.y.size_bytes() + result.z.size_bytes());
  const kernels::Stores stores = detail::stores_of(result.y.size_bytes() + result.z.size_bytes());
  const auto offset = static_cast<float>(params.norm.gamma_offset), epsilon = static_cast<float>(params.norm.epsilon);
  // The norm of rows [first, first + count), all of one type; bias is for LayerNorm only.
  const auto norm = [&]<class V>(const V* z, const V* weight, const V* bias, int64_t first, int64_t count, V* y,
                                 kernels::Stores stores_of_y) {
    float* rstd = result.statistics.rstd.data<float>() + first;
    if (layer) {
      kernels::layer_norm(z, weight, offset, bias, count, h, epsilon, y, result.statistics.mean.data<float>() + first,
                          rstd, stores_of_y);
    } else {
      kernels::rms_norm(z, weight, offset, count, h, epsilon, y, rstd, stores_of_y);
    }
  };
  with_types(x0.dtype(), call.z_dtype, [&]<class T, class Z>() {
    const size_t zeros = layer && inputs.bias == nullptr ? static_cast<size_t>(h) : 0;
    const std::vector<T> no_bias(zeros);
    const std::vector<float> no_wide_bias(zeros);
    const T* bias = inputs.bias != nullptr ? inputs.bias->data<T>() : no_bias.data();
    const float* wide_bias = inputs.bias != nullptr ? call.bias.data() : no_wide_bias.data();
    context.pool.parallel_for(rows, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      // A few rows at a time, so that z is read again from the nearest caches.
      const bool streams = stores == kernels::Stores::kNonTemporal;
      const int64_t some = std::clamp<int64_t>(kElementsAtOnce / std::max<int64_t>(h, 1), 1, 64);
      const auto room = static_cast<size_t>(some * h);
      std::vector<float> factors(static_cast<size_t>(h)), wide_z(room), wide_y(room);
      std::vector<Z> buffer(streams ? room : 0);
      for (int64_t first = begin; first < end; first += some) {
        const int64_t count = std::min(some, end - first), elements = count * h, at = first * h;
        for (int64_t row = first; row < first + count; ++row) {
          const float* f = factors_of(call, params, row, factors);
          kernels::dropout_add(x0.data<T>() + row * h, call.of_row(row), or_null(call.layerscale), f,
                               inputs.residual != nullptr ? inputs.residual->data<Z>() + row * h : nullptr, h,
                               streams ? buffer.data() + (row - first) * h : result.z.data<Z>() + row * h,
                               streams ? result.z.data<Z>() + row * h : nullptr);
          if (params.return_dropout_mask) {
            uint8_t* mask = result.mask.data<uint8_t>() + row * h;
            for (int64_t i = 0; i < h; ++i) mask[i] = f == nullptr || f[i] != 0 ? 1 : 0;
          }
        }
        const Z* z = streams ? buffer.data() : result.z.data<Z>() + at;
        T* y = result.y.data<T>() + at;
        if constexpr (std::is_same_v<T, Z>) {
          if (layer || inputs.bias == nullptr) {
            norm(z, inputs.weight.data<T>(), bias, first, count, y, stores);
            continue;
          }
        }
        norm(as_fp32(z, elements, wide_z), call.weight.data(), wide_bias, first, count, wide_y.data(),
             kernels::Stores::kCached);
        for (int64_t row = 0; !layer && inputs.bias != nullptr && row < count; ++row) {
          kernels::add(wide_y.data() + row * h, wide_bias, h, wide_y.data() + row * h);
        }
        store_fp32(wide_y.data(), elements, y, stores);
      }
    });
  });
  return result;
}

DropoutAddNormGradients dropout_add_norm_backward(Context& context, const TensorView& dy, const TensorView* dz_prenorm,
                                                  const DropoutAddNormInputs& inputs,
                                                  const DropoutAddNormResult& forward,
                                                  const DropoutAddNormParams& params, const DropoutAddNormSums& sums) {
  const TensorView& x0 = inputs.x0;
  const bool layer = params.kind == NormKind::kLayerNorm;
  const detail::OpScope scope(
      context, layer ? "ms::dropout_add_layer_norm_backward" : "ms::dropout_add_rms_norm_backward", dy, x0);
  const Call call = check(inputs, params);
  const int64_t rows = call.rows, h = call.h;
  detail::check_shape(dy, x0.shape(), "dropout_add_norm_backward: dy");
  detail::check_dtype(dy, x0.dtype(), "dropout_add_norm_backward: dy");
  detail::check_shape(forward.z, x0.shape(), "dropout_add_norm_backward: z");
  detail::check_dtype(forward.z, call.z_dtype, "dropout_add_norm_backward: z");
  detail::check_size(forward.statistics.rstd, rows, "dropout_add_norm_backward: rstd");
  if (layer) detail::check_size(forward.statistics.mean, rows, "dropout_add_norm_backward: mean");
  if (dz_prenorm != nullptr) {
    detail::check_shape(*dz_prenorm, x0.shape(), "dropout_add_norm_backward: dz_prenorm");
    detail::check_dtype(*dz_prenorm, call.z_dtype, "dropout_add_norm_backward: dz_prenorm");
  }
  const auto make = [&](core::DType dtype, core::Dims shape) {
    return Tensor(context.arena, dtype, std::move(shape), core::MemoryTag::kAct);
  };
  DropoutAddNormGradients result{make(x0.dtype(), x0.shape()), {}, {}};
  if (inputs.residual != nullptr) result.dresidual = make(call.z_dtype, x0.shape());
  if (inputs.rowscale != nullptr) result.drowscale = make(core::DType::kFp32, inputs.rowscale->shape());
  // Gradients that are not requested are summed into a scratch tensor.
  const Tensor unwanted = Tensor::zeros(context.arena, core::DType::kFp32, {h}, core::MemoryTag::kTmp);
  const auto target = [&](const TensorView* sum, const char* what) {
    if (sum == nullptr) return &unwanted.view();
    detail::check_size(*sum, h, what);
    return sum;
  };
  const TensorView* dweight = target(sums.dweight, "dropout_add_norm_backward: dweight");
  const TensorView* dbias = target(sums.dbias, "dropout_add_norm_backward: dbias");
  const TensorView* dlayerscale = target(sums.dlayerscale, "dropout_add_norm_backward: dlayerscale");
  const int64_t moved = dy.size_bytes() + 2 * x0.size_bytes() + forward.z.size_bytes();
  const auto kernel = scope.kernel(-1, moved + (inputs.residual != nullptr ? forward.z.size_bytes() : 0));
  const auto offset = static_cast<float>(params.norm.gamma_offset);
  const kernels::Stores stores = detail::stores_of(result.dx0.size_bytes());
  with_types(x0.dtype(), call.z_dtype, [&]<class T, class Z>() {
    const auto work = [&](int64_t first, int64_t count, float* partial) {
      std::vector<float> factors(static_cast<size_t>(h)), dy_row(factors), z_row(factors), past_row(factors),
          dz(factors);
      for (int64_t row = first; row < first + count; ++row) {
        const int64_t at = row * h;
        const float* f = factors_of(call, params, row, factors);
        const float* gradient = as_fp32(dy.data<T>() + at, h, dy_row);
        const float* z = as_fp32(forward.z.data<Z>() + at, h, z_row);
        const float* past = dz_prenorm == nullptr ? nullptr : as_fp32(dz_prenorm->data<Z>() + at, h, past_row);
        const float* rstd = forward.statistics.rstd.data<float>() + row;
        if (layer) {
          kernels::layer_norm_backward(gradient, z, call.weight.data(), offset,
                                       forward.statistics.mean.data<float>() + row, rstd, past, 1, h, dz.data(),
                                       partial, partial + h);
        } else {
          kernels::rms_norm_backward(gradient, z, call.weight.data(), offset, rstd, past, 1, h, dz.data(), partial);
          kernels::accumulate(partial + h, gradient, h);
        }
        if (inputs.residual != nullptr) store_fp32(dz.data(), h, result.dresidual.data<Z>() + at, stores);
        const float of_row =
            kernels::dropout_add_backward(dz.data(), x0.data<T>() + at, call.of_row(row), or_null(call.layerscale), f,
                                          h, result.dx0.data<T>() + at, partial + 2 * h);
        if (inputs.rowscale != nullptr) result.drowscale.data<float>()[row] = of_row;
      }
    };
    detail::sum_over_rows(context, rows, h, {dweight, dbias, dlayerscale}, work);
  });
  return result;
}

}  // namespace ms::ops
