#include "train/ops/latent_attention.h"

#include <cstring>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

Tensor make_like(Context& context, const TensorView& x, core::Dims shape) {
  return Tensor(context.arena, x.dtype(), std::move(shape), core::MemoryTag::kAct);
}

// A run of bytes of each row: `bytes` of them, `stride` from row to row.
struct Column {
  std::byte* data;
  int64_t stride, bytes;
};

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

// Copies a column of `rows` rows; both have the same bytes.
void copy_columns(Context& context, int64_t rows, std::initializer_list<std::pair<Column, Column>> from_to) {
  int64_t bytes = 0;
  for (const auto& [from, to] : from_to) bytes += from.bytes;
  context.pool.parallel_for(rows, detail::row_grain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (const auto& [from, to] : from_to)
        copy_bytes(to.data + row * to.stride, from.data + row * from.stride, from.bytes);
    }
  });
}

Column column_of(const TensorView& x, int64_t first, int64_t columns) {
  const int64_t element = core::size_of(x.dtype());
  return {x.bytes() + first * element, x.dim(-1) * element, columns * element};
}

}  // namespace

std::pair<Tensor, Tensor> split_columns(Context& context, const TensorView& x, int64_t first) {
  const detail::OpScope scope(context, "ms::split_columns", x);
  const int64_t columns = x.dim(-1), rest = columns - first;
  MS_CHECK(first > 0 && rest > 0, "split_columns: ", first, " of ", columns);
  std::pair<Tensor, Tensor> parts{make_like(context, x, detail::with_last(x.shape(), first)),
                                  make_like(context, x, detail::with_last(x.shape(), rest))};
  const auto kernel = scope.kernel(-1, 2 * x.size_bytes());
  copy_columns(context, detail::num_rows(x),
               {{column_of(x, 0, first), column_of(parts.first, 0, first)},
                {column_of(x, first, rest), column_of(parts.second, 0, rest)}});
  return parts;
}

Tensor join_columns(Context& context, const TensorView& a, const TensorView& b) {
  const detail::OpScope scope(context, "ms::join_columns", a, b);
  const int64_t first = a.dim(-1), rest = b.dim(-1);
  detail::check_shape(b, detail::with_last(a.shape(), rest), "join_columns: b");
  detail::check_dtype(b, a.dtype(), "join_columns: b");
  Tensor joined = make_like(context, a, detail::with_last(a.shape(), first + rest));
  const auto kernel = scope.kernel(-1, 2 * joined.size_bytes());
  copy_columns(
      context, detail::num_rows(a),
      {{column_of(a, 0, first), column_of(joined, 0, first)}, {column_of(b, 0, rest), column_of(joined, first, rest)}});
  return joined;
}

LatentKeyValues split_latent(Context& context, const TensorView& kv, const TensorView& shared, int64_t num_heads,
                             int64_t d_v) {
  const detail::OpScope scope(context, "ms::split_latent", kv, shared);
  MS_CHECK(kv.shape().size() == 3 && num_heads > 0 && kv.dim(2) % num_heads == 0 && kv.dim(2) / num_heads > d_v,
           "split_latent: ", core::cat(kv.shape()), " of ", num_heads, " heads with values of ", d_v);
  const int64_t own = kv.dim(2) / num_heads - d_v, d_rope = shared.dim(-1);
  detail::check_shape(shared, {kv.dim(0), kv.dim(1), d_rope}, "split_latent: shared");
  detail::check_dtype(shared, kv.dtype(), "split_latent: shared");
  LatentKeyValues result{make_like(context, kv, {kv.dim(0), kv.dim(1), num_heads, own + d_rope}),
                         make_like(context, kv, {kv.dim(0), kv.dim(1), num_heads, d_v})};
  const auto kernel = scope.kernel(-1, kv.size_bytes() + result.k.size_bytes() + result.v.size_bytes());
  const int64_t element = core::size_of(kv.dtype());
  const int64_t own_bytes = own * element, rope_bytes = d_rope * element, value_bytes = d_v * element;
  context.pool.parallel_for(kv.dim(0) * kv.dim(1), detail::row_grain(kv.dim(2)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t head = row * num_heads; head < (row + 1) * num_heads; ++head) {
        const std::byte* from = kv.bytes() + head * (own_bytes + value_bytes);
        std::byte* key = result.k.view().bytes() + head * (own_bytes + rope_bytes);
        copy_bytes(key, from, own_bytes);
        copy_bytes(key + own_bytes, shared.bytes() + row * rope_bytes, rope_bytes);
        copy_bytes(result.v.view().bytes() + head * value_bytes, from + own_bytes, value_bytes);
      }
    }
  });
  return result;
}

LatentGradients merge_latent(Context& context, const TensorView& dk, const TensorView& dv, int64_t d_rope) {
  const detail::OpScope scope(context, "ms::merge_latent", dk, dv);
  MS_CHECK(dk.shape().size() == 4 && dk.dim(3) > d_rope, "merge_latent: dk is ", core::cat(dk.shape()));
  const int64_t heads = dk.dim(2), own = dk.dim(3) - d_rope, d_v = dv.dim(-1), width = dk.dim(3);
  detail::check_shape(dv, {dk.dim(0), dk.dim(1), heads, d_v}, "merge_latent: dv");
  detail::check_dtype(dv, dk.dtype(), "merge_latent: dv");
  LatentGradients result{make_like(context, dk, {dk.dim(0), dk.dim(1), heads * (own + d_v)}),
                         make_like(context, dk, {dk.dim(0), dk.dim(1), d_rope})};
  const auto kernel = scope.kernel(-1, 2 * (dk.size_bytes() + dv.size_bytes()));
  detail::with_type(dk.dtype(), [&]<class T>() {
    constexpr int64_t kElement = sizeof(T);
    context.pool.parallel_for(dk.dim(0) * dk.dim(1), detail::row_grain(heads * width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* keys = dk.data<T>() + row * heads * width;
        const T* values = dv.data<T>() + row * heads * d_v;
        T* own_and_values = result.dkv.data<T>() + row * heads * (own + d_v);
        for (int64_t head = 0; head < heads; ++head, own_and_values += own + d_v) {
          std::memcpy(own_and_values, keys + head * width, static_cast<size_t>(own * kElement));
          std::memcpy(own_and_values + own, values + head * d_v, static_cast<size_t>(d_v * kElement));
        }
        for (int64_t e = 0; e < d_rope; ++e) {
          float sum = 0;
          for (int64_t head = 0; head < heads; ++head) sum += static_cast<float>(keys[head * width + own + e]);
          result.dshared.data<T>()[row * d_rope + e] = static_cast<T>(sum);
        }
      }
    });
  });
  return result;
}

}  // namespace ms::ops
