#include "train/ops/elementwise.h"

#include <cstring>

#include "kernels/convert.h"
#include "kernels/elementwise.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::DType;
using core::Tensor;
using core::TensorView;

template <class Body>
void for_elements(Context& context, int64_t n, const Body& body) {
  context.pool.parallel_for(n, detail::kGrainElements, body);
}

void add_to(Context& context, const TensorView& a, const TensorView& b, const TensorView& out) {
  detail::check_size(b, a.size(), "add: b");
  detail::check_dtype(b, a.dtype(), "add: b");
  // In place, a line is already in the cache when it is written.
  const kernels::Stores stores =
      out.bytes() == a.bytes() ? kernels::Stores::kCached : detail::stores_of(out.size_bytes());
  detail::with_type(a.dtype(), [&]<class T>() {
    for_elements(context, a.size(), [&](int64_t begin, int64_t end) {
      kernels::add(a.data<T>() + begin, b.data<T>() + begin, end - begin, out.data<T>() + begin, stores);
    });
  });
}

template <class From, class To>
void convert(Context& context, const TensorView& x, const TensorView& out) {
  const kernels::Stores stores = detail::stores_of(out.size_bytes());
  for_elements(context, x.size(), [&](int64_t begin, int64_t end) {
    kernels::convert(reinterpret_cast<const From*>(x.bytes()) + begin, reinterpret_cast<To*>(out.bytes()) + begin,
                     end - begin, stores);
  });
}

}  // namespace

Tensor add(Context& context, const TensorView& a, const TensorView& b) {
  const detail::OpScope scope(context, "ms::add", a, b);
  Tensor out(context.arena, a.dtype(), a.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 3 * a.size_bytes());
  add_to(context, a, b, out);
  return out;
}

void add_inplace(Context& context, const TensorView& a, const TensorView& b) {
  const detail::OpScope scope(context, "ms::add_inplace", a, b);
  const auto kernel = scope.kernel(-1, 3 * a.size_bytes());
  add_to(context, a, b, a);
}

Tensor cast(Context& context, const TensorView& x, DType dtype) {
  Tensor out(context.arena, dtype, x.shape(), core::MemoryTag::kAct);
  cast_into(context, x, out);
  return out;
}

void cast_into(Context& context, const TensorView& x, const TensorView& out) {
  const detail::OpScope scope(context, "ms::cast", x);
  detail::check_size(out, x.size(), "cast: out");
  const auto kernel = scope.kernel(-1, x.size_bytes() + out.size_bytes());
  const DType from = x.dtype(), to = out.dtype();
  if (from == to) {
    const int64_t element = core::size_of(from);
    for_elements(context, x.size(), [&](int64_t begin, int64_t end) {
      std::memcpy(out.bytes() + begin * element, x.bytes() + begin * element,
                  static_cast<size_t>((end - begin) * element));
    });
    return;
  }
  using kernels::bf16;
  using kernels::fp16;
  if (from == DType::kFp32 && to == DType::kBf16) return convert<float, bf16>(context, x, out);
  if (from == DType::kBf16 && to == DType::kFp32) return convert<bf16, float>(context, x, out);
  if (from == DType::kFp32 && to == DType::kFp16) return convert<float, fp16>(context, x, out);
  if (from == DType::kFp16 && to == DType::kFp32) return convert<fp16, float>(context, x, out);
  if (from == DType::kBf16 && to == DType::kFp16) return convert<bf16, fp16>(context, x, out);
  if (from == DType::kFp16 && to == DType::kBf16) return convert<fp16, bf16>(context, x, out);
  throw core::Error(core::ErrorCode::kUnsupported, core::cat("cast: from ", core::dtype_name(from), " to ",
                                                             core::dtype_name(to), "; it takes fp32, bf16 and fp16"));
}

void accumulate_fp32(Context& context, const TensorView& sum, const TensorView& x) {
  const detail::OpScope scope(context, "ms::accumulate_fp32", sum, x);
  detail::check_size(x, sum.size(), "accumulate_fp32: x");
  const auto kernel = scope.kernel(-1, 2 * sum.size_bytes() + x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    for_elements(context, x.size(), [&](int64_t begin, int64_t end) {
      kernels::accumulate(sum.data<float>() + begin, x.data<T>() + begin, end - begin);
    });
  });
}

void scale_inplace(Context& context, const TensorView& x, float factor) {
  const detail::OpScope scope(context, "ms::scale_inplace", x);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    for_elements(context, x.size(),
                 [&](int64_t begin, int64_t end) { kernels::scale(x.data<T>() + begin, end - begin, factor); });
  });
}

void fill_zero(Context& context, const TensorView& x) {
  const detail::OpScope scope(context, "ms::fill_zero", x);
  const auto kernel = scope.kernel(-1, x.size_bytes());
  for_elements(context, x.size_bytes(), [&](int64_t begin, int64_t end) {
    std::memset(x.bytes() + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace ms::ops
