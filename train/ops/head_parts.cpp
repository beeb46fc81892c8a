#include "train/ops/head_parts.h"

#include <cstring>
#include <vector>

#include "kernels/rows.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::Tensor;
using core::TensorView;

Tensor split_heads(Context& context, const TensorView& x, int64_t parts, int64_t copies) {
  const detail::OpScope scope(context, "ms::split_heads", x);
  const int64_t seq = x.dim(0), batch = x.dim(1), heads = x.dim(2), d = x.dim(3);
  MS_CHECK(heads * copies % parts == 0, "split_heads: ", heads, " heads, ", copies, " times, in ", parts, " parts");
  const int64_t each = heads * copies / parts;
  Tensor result(context.arena, x.dtype(), {parts * seq, batch, each, d}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, x.size_bytes() + result.size_bytes());
  const int64_t bytes = d * core::size_of(x.dtype()), tokens = seq * batch;
  context.pool.parallel_for(parts * tokens, detail::row_grain(each * d), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {  // part, token
      const std::byte* const from = x.bytes() + i % tokens * heads * bytes;
      std::byte* to = result.bytes() + i * each * bytes;
      const int64_t first = i / tokens * each;  // of the copies
      if (copies == 1) {
        std::memcpy(to, from + first * bytes, static_cast<size_t>(each * bytes));
        continue;
      }
      for (int64_t copy = first; copy < first + each; ++copy, to += bytes)
        std::memcpy(to, from + copy / copies * bytes, static_cast<size_t>(bytes));
    }
  });
  return result;
}

Tensor join_heads(Context& context, const TensorView& x, int64_t parts, int64_t copies) {
  const detail::OpScope scope(context, "ms::join_heads", x);
  const int64_t seq = x.dim(0) / parts, batch = x.dim(1), each = x.dim(2), d = x.dim(3);
  MS_CHECK(x.dim(0) % parts == 0 && each * parts % copies == 0, "join_heads: ", core::cat(x.shape()), " of ", parts,
           " parts, ", copies, " copies");
  const int64_t heads = each * parts / copies, tokens = seq * batch;
  Tensor result(context.arena, x.dtype(), {seq, batch, heads, d}, core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, x.size_bytes() + result.size_bytes());
  detail::with_type(x.dtype(), [&]<class T>() {
    context.pool.parallel_for(tokens, detail::row_grain(heads * d), [&](int64_t begin, int64_t end) {
      std::vector<const T*> rows(static_cast<size_t>(copies));
      for (int64_t token = begin; token < end; ++token) {
        for (int64_t head = 0; head < heads; ++head) {
          for (int64_t copy = 0; copy < copies; ++copy) {
            const int64_t at = head * copies + copy, part = at / each;
            rows[static_cast<size_t>(copy)] = x.data<T>() + ((part * tokens + token) * each + at % each) * d;
          }
          kernels::weighted_row_sum(rows.data(), nullptr, copies, d, result.data<T>() + (token * heads + head) * d);
        }
      }
    });
  });
  return result;
}

}  // namespace ms::ops
