#include "train/ops/activation.h"

#include <string_view>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

// Names of the operator in a trace: forward, backward, and their gated forms.
struct Names {
  std::string_view plain, plain_backward, gated, gated_backward;
};

constexpr Names names_of(Activation kind) {
  switch (kind) {
    case Activation::kGelu:
      return {"ms::gelu", "ms::gelu_backward", "ms::geglu", "ms::geglu_backward"};
    case Activation::kGeluTanh:
      return {"ms::gelu_tanh", "ms::gelu_tanh_backward", "ms::geglu_tanh", "ms::geglu_tanh_backward"};
    case Activation::kFastGelu:
      return {"ms::fast_gelu", "ms::fast_gelu_backward", "ms::fast_geglu", "ms::fast_geglu_backward"};
    case Activation::kRelu:
      return {"ms::relu", "ms::relu_backward", "ms::reglu", "ms::reglu_backward"};
    case Activation::kSquaredRelu:
      return {"ms::squared_relu", "ms::squared_relu_backward", "ms::squared_reglu", "ms::squared_reglu_backward"};
    case Activation::kSilu:
      break;
  }
  return {"ms::silu", "ms::silu_backward", "ms::swiglu", "ms::swiglu_backward"};
}

}  // namespace

Tensor activation(Context& context, Activation kind, const TensorView& x) {
  const detail::OpScope scope(context, names_of(kind).plain, x);
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
      kernels::activation(kind, x.data<T>() + begin, end - begin, y.data<T>() + begin, stores);
    });
  });
  return y;
}

Tensor activation_backward(Context& context, Activation kind, const TensorView& dy, Tensor x) {
  const detail::OpScope scope(context, names_of(kind).plain_backward, dy, x.view());
  detail::check_shape(x, dy.shape(), "activation_backward: x");
  detail::check_dtype(x, dy.dtype(), "activation_backward: x");
  const auto kernel = scope.kernel(-1, 3 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
      T* const values = x.data<T>() + begin;
      kernels::activation_backward(kind, dy.data<T>() + begin, values, end - begin, values);
    });
  });
  return x;
}

Tensor gated_activation(Context& context, Activation kind, const TensorView& x) {
  const detail::OpScope scope(context, names_of(kind).gated, x);
  MS_CHECK(x.dim(-1) % 2 == 0, "gated_activation: x is ", core::cat(x.shape()), ", expected [.., 2f]");
  const int64_t f = x.dim(-1) / 2;
  Tensor y(context.arena, x.dtype(), detail::with_last(x.shape(), f), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, x.size_bytes() + y.size_bytes());
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(detail::num_rows(x), detail::row_grain(f), [&](int64_t begin, int64_t end) {
      kernels::gated_activation(kind, x.data<T>() + begin * 2 * f, end - begin, f, y.data<T>() + begin * f, stores);
    });
  });
  return y;
}

Tensor gated_activation_backward(Context& context, Activation kind, const TensorView& dy, Tensor x) {
  const detail::OpScope scope(context, names_of(kind).gated_backward, dy, x.view());
  const int64_t f = dy.dim(-1);
  detail::check_shape(x, detail::with_last(dy.shape(), 2 * f), "gated_activation_backward: x");
  detail::check_dtype(x, dy.dtype(), "gated_activation_backward: x");
  const auto kernel = scope.kernel(-1, dy.size_bytes() + 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(detail::num_rows(x), detail::row_grain(f), [&](int64_t begin, int64_t end) {
      T* const values = x.data<T>() + begin * 2 * f;
      kernels::gated_activation_backward(kind, dy.data<T>() + begin * f, values, end - begin, f, values);
    });
  });
  return x;
}

Tensor sigmoid_gate(Context& context, const TensorView& x, const TensorView& gate) {
  const detail::OpScope scope(context, "ms::sigmoid_gate", x, gate);
  detail::check_shape(gate, x.shape(), "sigmoid_gate: gate");
  detail::check_dtype(gate, x.dtype(), "sigmoid_gate: gate");
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 3 * x.size_bytes());
  const kernels::Stores stores = detail::stores_of(y.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
      kernels::sigmoid_gate(x.data<T>() + begin, gate.data<T>() + begin, end - begin, y.data<T>() + begin, stores);
    });
  });
  return y;
}

void sigmoid_gate_backward_inplace(Context& context, const TensorView& dy, const TensorView& x,
                                   const TensorView& gate) {
  const detail::OpScope scope(context, "ms::sigmoid_gate_backward", dy, x, gate);
  for (const TensorView& of : {dy, gate}) {
    detail::check_shape(of, x.shape(), "sigmoid_gate_backward");
    detail::check_dtype(of, x.dtype(), "sigmoid_gate_backward");
  }
  const auto kernel = scope.kernel(-1, 5 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
      T *const of_x = dy.data<T>() + begin, *const of_gate = gate.data<T>() + begin;
      kernels::sigmoid_gate_backward(of_x, x.data<T>() + begin, of_gate, end - begin, of_x, of_gate);
    });
  });
}

void softcap_inplace(Context& context, const TensorView& x, double cap) {
  const detail::OpScope scope(context, "ms::softcap", x);
  detail::check_dtype(x, core::DType::kFp32, "softcap: x");
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  context.pool.parallel_for(x.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
    float* values = x.data<float>() + begin;
    kernels::softcap(values, end - begin, static_cast<float>(cap), values);
  });
}

void softcap_backward_inplace(Context& context, const TensorView& dy, const TensorView& y, double cap) {
  const detail::OpScope scope(context, "ms::softcap_backward", dy, y);
  detail::check_dtype(dy, core::DType::kFp32, "softcap_backward: dy");
  detail::check_dtype(y, core::DType::kFp32, "softcap_backward: y");
  detail::check_size(y, dy.size(), "softcap_backward: y");
  const auto kernel = scope.kernel(-1, 3 * y.size_bytes());
  context.pool.parallel_for(dy.size(), detail::kGrainElements, [&](int64_t begin, int64_t end) {
    float* gradient = dy.data<float>() + begin;
    kernels::softcap_backward(gradient, y.data<float>() + begin, end - begin, static_cast<float>(cap), gradient);
  });
}

}  // namespace ms::ops
