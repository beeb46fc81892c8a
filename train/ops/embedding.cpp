#include "train/ops/embedding.h"

#include <cstring>

#include "kernels/elementwise.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor embedding(Context& context, std::span<const int32_t> ids, const TensorView& weight, int64_t first_id) {
  const detail::OpScope scope(context, "ms::embedding", weight);
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t rows = weight.dim(0), h = weight.dim(1), row_bytes = h * core::size_of(weight.dtype());
  Tensor out(context.arena, weight.dtype(), {n, h}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * out.size_bytes());
  context.pool.parallel_for(n, detail::row_grain(h), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = ids[static_cast<size_t>(i)] - first_id;
      std::byte* target = out.bytes() + i * row_bytes;
      if (row >= 0 && row < rows) {
        std::memcpy(target, weight.bytes() + row * row_bytes, static_cast<size_t>(row_bytes));
      } else {
        std::memset(target, 0, static_cast<size_t>(row_bytes));
      }
    }
  });
  return out;
}

void embedding_backward(Context& context, std::span<const int32_t> ids, const TensorView& dy,
                        const TensorView& main_grad, int64_t first_id) {
  const detail::OpScope scope(context, "ms::embedding_backward", dy);
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t rows = main_grad.dim(0), h = main_grad.dim(1);
  detail::check_shape(dy, {n, h}, "embedding_backward: dy");
  const auto kernel = scope.kernel(-1, dy.size_bytes());
  detail::with_type(dy.dtype(), [&]<class T>() {
    // Threads are split over columns: ids may repeat, and each sum must be made in the order of ids.
    context.pool.parallel_for(h, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = ids[static_cast<size_t>(i)] - first_id;
        if (row < 0 || row >= rows) continue;
        kernels::accumulate(main_grad.data<float>() + row * h + begin, dy.data<T>() + i * h + begin, end - begin);
      }
    });
  });
}

namespace {

void check_positions(const TensorView& hidden, const TensorView& table, int64_t first_position) {
  MS_CHECK(hidden.shape().size() == 3, "position embedding: hidden is ", core::cat(hidden.shape()),
           ", expected [seq, batch, h]");
  detail::check_shape(table, {table.dim(0), hidden.dim(2)}, "position embedding: table");
  if (first_position + hidden.dim(0) > table.dim(0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("position embedding: ", first_position + hidden.dim(0),
                                " positions, but the table has ", table.dim(0), "; raise --max-position-embeddings"));
  }
}

}  // namespace

void add_position_embedding(Context& context, const TensorView& hidden, const TensorView& table,
                            int64_t first_position) {
  const detail::OpScope scope(context, "ms::add_position_embedding", hidden, table);
  check_positions(hidden, table, first_position);
  detail::check_dtype(table, hidden.dtype(), "position embedding: table");
  const int64_t batch = hidden.dim(1), h = hidden.dim(2);
  const auto kernel = scope.kernel(-1, 3 * hidden.size_bytes());
  detail::with_type(hidden.dtype(), [&]<class T>() {
    context.pool.parallel_for(hidden.dim(0) * batch, detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* target = hidden.data<T>() + row * h;
        kernels::add(target, table.data<T>() + (first_position + row / batch) * h, h, target);
      }
    });
  });
}

void position_embedding_backward(Context& context, const TensorView& dhidden, const TensorView& main_grad,
                                 int64_t first_position) {
  const detail::OpScope scope(context, "ms::position_embedding_backward", dhidden);
  check_positions(dhidden, main_grad, first_position);
  const int64_t batch = dhidden.dim(1), h = dhidden.dim(2);
  const auto kernel = scope.kernel(-1, 2 * dhidden.size_bytes());
  detail::with_type(dhidden.dtype(), [&]<class T>() {
    context.pool.parallel_for(dhidden.dim(0), detail::row_grain(batch * h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin * batch; row < end * batch; ++row) {
        kernels::accumulate(main_grad.data<float>() + (first_position + row / batch) * h, dhidden.data<T>() + row * h,
                            h);
      }
    });
  });
}

}  // namespace ms::ops
