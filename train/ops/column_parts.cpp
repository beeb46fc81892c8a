#include "train/ops/column_parts.h"

#include <cstring>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor join_parts(Context& context, const TensorView& parts, int64_t first, int64_t count) {
  const detail::OpScope scope(context, "ms::join_parts", parts);
  MS_CHECK(parts.shape().size() == 4 && first >= 0 && first + count <= parts.dim(1), "join_parts: ", first, " + ",
           count, " of ", core::cat(parts.shape()));
  const int64_t n = parts.dim(0), batch = parts.dim(2), width = parts.dim(3);
  Tensor joined(context.arena, parts.dtype(), {count, batch, n * width}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * joined.size_bytes());
  const int64_t bytes = width * core::size_of(parts.dtype()), of_part = parts.dim(1) * batch;
  context.pool.parallel_for(count * batch, detail::row_grain(n * width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t part = 0; part < n; ++part)
        std::memcpy(joined.view().bytes() + (row * n + part) * bytes,
                    parts.bytes() + (part * of_part + first * batch + row) * bytes, static_cast<size_t>(bytes));
    }
  });
  return joined;
}

Tensor part_of_columns(Context& context, const TensorView& x, int64_t part, int64_t n) {
  const detail::OpScope scope(context, "ms::part_of_columns", x);
  MS_CHECK(x.shape().size() == 3 && part >= 0 && part < n && x.dim(2) % n == 0, "part_of_columns: ", part, " of ", n,
           " of ", core::cat(x.shape()));
  const int64_t width = x.dim(2) / n, rows = x.dim(0) * x.dim(1);
  Tensor own(context.arena, x.dtype(), {x.dim(0), x.dim(1), width}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * own.size_bytes());
  const int64_t bytes = width * core::size_of(x.dtype());
  context.pool.parallel_for(rows, detail::row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(own.view().bytes() + row * bytes, x.bytes() + (row * n + part) * bytes, static_cast<size_t>(bytes));
  });
  return own;
}

}  // namespace ms::ops
