#include "train/ops/rotary_position_embedding.h"

#include <array>
#include <vector>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

// The first three axes of x and of the tables, and the strides of the tables' rows along x's axes: 0 for axes of length
// 1.
struct Rows {
  std::array<int64_t, 3> of_x, of_table, stride;
  int64_t d;

  int64_t count() const { return of_x[0] * of_x[1] * of_x[2]; }
  int64_t tables() const { return of_table[0] * of_table[1] * of_table[2]; }
  int64_t table_of(int64_t row) const {
    return row / (of_x[1] * of_x[2]) * stride[0] + row / of_x[2] % of_x[1] * stride[1] + row % of_x[2] * stride[2];
  }
  // Calls visit(row) in order for the rows of x that use this row of the tables.
  template <class Visit>
  void of_table_row(int64_t table, const Visit& visit) const {
    const std::array<int64_t, 3> at = {table / (of_table[1] * of_table[2]), table / of_table[2] % of_table[1],
                                       table % of_table[2]};
    const auto first = [&](size_t axis) { return stride[axis] == 0 ? 0 : at[axis]; };
    const auto end = [&](size_t axis) { return stride[axis] == 0 ? of_x[axis] : at[axis] + 1; };
    for (int64_t i = first(0); i < end(0); ++i) {
      for (int64_t j = first(1); j < end(1); ++j) {
        for (int64_t k = first(2); k < end(2); ++k) visit((i * of_x[1] + j) * of_x[2] + k);
      }
    }
  }
};

Rows check(const TensorView& x, const TensorView& cos, const TensorView& sin) {
  const core::Dims &of_x = x.shape(), &of_table = cos.shape();
  bool fits = of_x.size() == 4 && of_table.size() == 4 && of_table[3] == of_x[3] && of_x[3] % 2 == 0;
  for (size_t axis = 0; fits && axis < 3; ++axis) fits = of_table[axis] == of_x[axis] || of_table[axis] == 1;
  if (!fits || sin.shape() != of_table) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("rotary_position_embedding: tables ", core::cat(of_table), " and ",
                                core::cat(sin.shape()), " for ", core::cat(of_x)));
  }
  detail::check_dtype(cos, x.dtype(), "rotary_position_embedding: cos");
  detail::check_dtype(sin, x.dtype(), "rotary_position_embedding: sin");
  Rows rows{{of_x[0], of_x[1], of_x[2]}, {of_table[0], of_table[1], of_table[2]}, {}, of_x[3]};
  int64_t apart = 1;
  for (size_t axis = 3; axis-- > 0; apart *= of_table[axis]) rows.stride[axis] = of_table[axis] == 1 ? 0 : apart;
  return rows;
}

}  // namespace

Tensor npu_rotary_position_embedding(Context& context, const TensorView& x, const TensorView& cos,
                                     const TensorView& sin, kernels::RopePairs pairs) {
  const detail::OpScope scope(context, "ms::rotary_position_embedding", x, cos);
  const Rows rows = check(x, cos, sin);
  const int64_t d = rows.d;
  Tensor y(context.arena, x.dtype(), x.shape(), core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows.count(), detail::row_grain(d), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = rows.table_of(row) * d;
        kernels::rotate(pairs, x.data<T>() + row * d, cos.data<T>() + at, sin.data<T>() + at, d, y.data<T>() + row * d);
      }
    });
  });
  return y;
}

RotaryGradients npu_rotary_position_embedding_backward(Context& context, const TensorView& dy, const TensorView& x,
                                                       const TensorView& cos, const TensorView& sin,
                                                       kernels::RopePairs pairs, bool with_tables) {
  const detail::OpScope scope(context, "ms::rotary_position_embedding_backward", dy, x, cos);
  const Rows rows = check(x, cos, sin);
  detail::check_shape(dy, x.shape(), "rotary_position_embedding_backward: dy");
  detail::check_dtype(dy, x.dtype(), "rotary_position_embedding_backward: dy");
  const int64_t d = rows.d;
  const auto make = [&](const core::Dims& shape) {
    return Tensor(context.arena, x.dtype(), shape, core::MemoryTag::kAct);
  };
  RotaryGradients result{make(x.shape()), {}, {}};
  const auto kernel = scope.kernel(-1, (with_tables ? 4 : 2) * x.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows.count(), detail::row_grain(d), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = rows.table_of(row) * d;
        kernels::rotate_backward(pairs, dy.data<T>() + row * d, cos.data<T>() + at, sin.data<T>() + at, d,
                                 result.dx.data<T>() + row * d);
      }
    });
    if (!with_tables) return;
    result.dcos = make(cos.shape());
    result.dsin = make(cos.shape());
    context.pool.parallel_for(rows.tables(), 1, [&](int64_t begin, int64_t end) {
      std::vector<float> dcos(static_cast<size_t>(d)), dsin(dcos);
      for (int64_t table = begin; table < end; ++table) {
        std::fill(dcos.begin(), dcos.end(), 0.0F);
        std::fill(dsin.begin(), dsin.end(), 0.0F);
        rows.of_table_row(table, [&](int64_t row) {
          kernels::rotate_backward_tables(pairs, dy.data<T>() + row * d, x.data<T>() + row * d, d, dcos.data(),
                                          dsin.data());
        });
        for (int64_t i = 0; i < d; ++i) {
          result.dcos.data<T>()[table * d + i] = T(dcos[static_cast<size_t>(i)]);
          result.dsin.data<T>()[table * d + i] = T(dsin[static_cast<size_t>(i)]);
        }
      }
    });
  });
  return result;
}

}  // namespace ms::ops
