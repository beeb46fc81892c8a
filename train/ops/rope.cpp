#include "train/ops/rope.h"

#include "kernels/rope.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::TensorView;

// Rotates runs of `tokens` tokens, each by one position, position_of(run).
template <class PositionOf>
void rotate(Context& context, const TensorView& x, const RopeTable& table, bool inverse, int64_t tokens,
            int64_t first_element, PositionOf position_of) {
  const detail::OpScope scope(context, inverse ? "ms::rope_backward" : "ms::rope", x);
  const int64_t runs = x.dim(0) * x.dim(1) / tokens, heads = x.dim(2), d = x.dim(3);
  MS_CHECK(first_element >= 0 && first_element + table.dim() <= d, "rope: the table rotates ", table.dim(),
           " elements from ", first_element, " on, of heads of ", d);
  for (int64_t run = 0; run < runs; ++run) table.row_of(position_of(run));  // throws before anything is rotated
  const int64_t elements = tokens * heads * d, half = table.dim() / 2;
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(runs, detail::row_grain(elements), [&](int64_t begin, int64_t end) {
      for (int64_t run = begin; run < end; ++run) {
        const int64_t row = table.row_of(position_of(run));
        kernels::rope(table.pairs(), x.data<T>() + run * elements + first_element, tokens * heads, d, table.dim(),
                      table.cos() + row * half, table.sin() + row * half, inverse);
      }
    });
  });
}

void check_rows(const TensorView& x) {
  MS_CHECK(x.shape().size() == 4, "rope: x is ", core::cat(x.shape()), ", expected [seq, batch, heads, d]");
}

}  // namespace

void rope_inplace(Context& context, const TensorView& x, const RopeTable& table, int64_t first_position, bool inverse,
                  int64_t first_element) {
  check_rows(x);
  rotate(context, x, table, inverse, x.dim(1), first_element, [=](int64_t s) { return first_position + s; });
}

void rope_inplace(Context& context, const TensorView& x, const RopeTable& table, std::span<const int32_t> positions,
                  bool inverse, int64_t first_element) {
  check_rows(x);
  MS_CHECK(static_cast<int64_t>(positions.size()) == x.dim(0) * x.dim(1), "rope: ", positions.size(), " positions for ",
           x.dim(0), " rows of ", x.dim(1));
  rotate(context, x, table, inverse, 1, first_element,
         [=](int64_t token) { return static_cast<int64_t>(positions[static_cast<size_t>(token)]); });
}

}  // namespace ms::ops
