#include "train/ops/rope.h"

#include "kernels/rope.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::TensorView;

// position_of(s) returns the position of row s.
template <class PositionOf>
void rotate(Context& context, const TensorView& x, const RopeTable& table, bool inverse, PositionOf position_of) {
  const detail::OpScope scope(context, inverse ? "ms::rope_backward" : "ms::rope", x);
  MS_CHECK(x.shape().size() == 4, "rope: x is ", core::cat(x.shape()), ", expected [seq, batch, heads, d]");
  const int64_t seq = x.dim(0), batch = x.dim(1), heads = x.dim(2), d = x.dim(3);
  MS_CHECK(table.dim() <= d, "rope: the table rotates ", table.dim(), " elements of heads of ", d);
  for (int64_t s = 0; s < seq; ++s) {
    if (position_of(s) < 0 || position_of(s) >= table.positions()) {
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        core::cat("rotary embedding: position ", position_of(s), " of row ", s, ", but the table has ",
                                  table.positions(), " positions; raise --max-position-embeddings"));
    }
  }
  const int64_t row = batch * heads * d, half = table.dim() / 2;
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(seq, detail::row_grain(row), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        const int64_t position = position_of(s);
        kernels::rope(table.pairs(), x.data<T>() + s * row, batch * heads, d, table.dim(),
                      table.cos() + position * half, table.sin() + position * half, inverse);
      }
    });
  });
}

}  // namespace

void rope_inplace(Context& context, const TensorView& x, const RopeTable& table, int64_t first_position, bool inverse) {
  rotate(context, x, table, inverse, [=](int64_t s) { return first_position + s; });
}

void rope_inplace(Context& context, const TensorView& x, const RopeTable& table, std::span<const int32_t> positions,
                  bool inverse) {
  MS_CHECK(static_cast<int64_t>(positions.size()) == x.dim(0), "rope: ", positions.size(), " positions for ", x.dim(0),
           " rows");
  rotate(context, x, table, inverse,
         [=](int64_t s) { return static_cast<int64_t>(positions[static_cast<size_t>(s)]); });
}

}  // namespace ms::ops
