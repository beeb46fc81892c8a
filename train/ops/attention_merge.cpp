#include "train/ops/attention_merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/bf16.h"
#include "kernels/fp16.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {

using core::TensorView;

void merge_attention(Context& context, const TensorView& out, const TensorView& lse, RowSpan rows,
                     const TensorView& sum, const TensorView& sum_lse) {
  const detail::OpScope scope(context, "ms::merge_attention", out, sum);
  const int64_t seq = out.dim(0), batch = out.dim(1), heads = out.dim(2), d = out.dim(3);
  MS_CHECK(rows.first >= 0 && rows.first + rows.count <= seq, "merge_attention: rows ", rows.first, " on, ", rows.count,
           " of ", seq);
  detail::check_shape(sum, out.shape(), "merge_attention: sum");
  detail::check_shape(lse, {batch, heads, seq}, "merge_attention: lse");
  detail::check_shape(sum_lse, lse.shape(), "merge_attention: sum_lse");
  const auto kernel = scope.kernel(-1, (out.size_bytes() + 2 * sum.size_bytes()) / seq * rows.count);
  detail::with_type(out.dtype(), [&]<class T>() {
    context.pool.parallel_for(rows.count * batch, detail::row_grain(heads * d), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {  // row, batch
        const int64_t row = rows.first + i / batch, sample = i % batch;
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t statistic = (sample * heads + head) * seq + row;
          float& before = sum_lse.data<float>()[statistic];
          const float added = lse.data<float>()[statistic], most = std::max(before, added);
          if (most == -std::numeric_limits<float>::infinity()) continue;
          const float both = most + std::log(std::exp(before - most) + std::exp(added - most));
          const float of_sum = std::exp(before - both), of_out = std::exp(added - both);
          before = both;
          const int64_t at = ((row * batch + sample) * heads + head) * d;
          float* const to = sum.data<float>() + at;
          const T* const from = out.data<T>() + at;
          for (int64_t e = 0; e < d; ++e) to[e] = of_sum * to[e] + of_out * static_cast<float>(from[e]);
        }
      }
    });
  });
}

}  // namespace ms::ops
