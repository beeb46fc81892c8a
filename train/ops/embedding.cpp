#include "train/ops/embedding.h"

#include <algorithm>
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

// end: behind the last position.
void check_positions(const TensorView& hidden, const TensorView& table, int64_t end) {
  MS_CHECK(hidden.shape().size() == 3, "position embedding: hidden is ", core::cat(hidden.shape()),
           ", expected [seq, batch, h]");
  detail::check_shape(table, {table.dim(0), hidden.dim(2)}, "position embedding: table");
  if (end > table.dim(0)) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("position embedding: ", end, " positions, but the table has ", table.dim(0),
                                "; raise --max-position-embeddings"));
  }
}

// position_of(row): of a row of hidden, [seq * batch]; below `behind`.
template <class PositionOf>
void add_rows(Context& context, const TensorView& hidden, const TensorView& table, int64_t behind,
              PositionOf position_of) {
  const detail::OpScope scope(context, "ms::add_position_embedding", hidden, table);
  check_positions(hidden, table, behind);
  detail::check_dtype(table, hidden.dtype(), "position embedding: table");
  const int64_t h = hidden.dim(2);
  const auto kernel = scope.kernel(-1, 3 * hidden.size_bytes());
  detail::with_type(hidden.dtype(), [&]<class T>() {
    context.pool.parallel_for(hidden.dim(0) * hidden.dim(1), detail::row_grain(h), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* target = hidden.data<T>() + row * h;
        kernels::add(target, table.data<T>() + position_of(row) * h, h, target);
      }
    });
  });
}

}  // namespace

void add_position_embedding(Context& context, const TensorView& hidden, const TensorView& table,
                            int64_t first_position) {
  const int64_t batch = hidden.dim(1);
  add_rows(context, hidden, table, first_position + hidden.dim(0),
           [=](int64_t row) { return first_position + row / batch; });
}

void add_position_embedding(Context& context, const TensorView& hidden, const TensorView& table,
                            std::span<const int32_t> positions) {
  MS_CHECK(static_cast<int64_t>(positions.size()) == hidden.dim(0) * hidden.dim(1),
           "position embedding: ", positions.size(), " positions for hidden ", core::cat(hidden.shape()));
  add_rows(context, hidden, table, int64_t{std::ranges::max(positions)} + 1,
           [=](int64_t row) { return positions[static_cast<size_t>(row)]; });
}

void position_embedding_backward(Context& context, const TensorView& dhidden, const TensorView& main_grad,
                                 int64_t first_position) {
  const detail::OpScope scope(context, "ms::position_embedding_backward", dhidden);
  check_positions(dhidden, main_grad, first_position + dhidden.dim(0));
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
