#include "train/ops/ring_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/rows.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;

struct Sizes {
  int64_t rows, heads, d;  // rows: positions times batch
  int64_t batch;           // in kSbh; 0: kTnd
  // Index of the statistics of a row and head.
  int64_t statistic(int64_t row, int64_t head) const {
    return batch == 0 ? row * heads + head : (row % batch * heads + head) * (rows / batch) + row / batch;
  }
};

Sizes check(const PartialAttention& x, AttentionLayout layout, std::span<const int64_t> ends) {
  const auto refuse = [](const std::string& why) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "ring_attention_update: " + why);
  };
  if (layout != AttentionLayout::kSbh && layout != AttentionLayout::kTnd) refuse("its layouts are SBH and TND");
  const core::Dims &out = x.out.shape(), &statistics = x.softmax_max.shape();
  MS_CHECK(out.size() == 3, "ring_attention_update: out is ", core::cat(out));
  if (layout == AttentionLayout::kTnd) {
    const bool rises = std::is_sorted(ends.begin(), ends.end()) && !ends.empty() && ends[0] >= 0;
    if (!rises || ends.back() != out[0]) refuse(core::cat("actual_seq_qlen does not rise to ", out[0]));
    detail::check_shape(x.softmax_max, {out[0], out[1]}, "ring_attention_update: softmax_max");
    return {out[0], out[1], out[2], 0};
  }
  if (!ends.empty()) refuse("actual_seq_qlen is of layout TND");
  MS_CHECK(statistics.size() == 3 && statistics[0] == out[1] && statistics[2] == out[0] && statistics[1] > 0 &&
               out[2] % statistics[1] == 0,
           "ring_attention_update: out is ", core::cat(out), ", softmax_max ", core::cat(statistics));
  return {out[0] * out[1], statistics[1], out[2] / statistics[1], out[1]};
}

}  // namespace

FusionAttentionResult ring_attention_update(Context& context, const PartialAttention& previous,
                                            const PartialAttention& current, AttentionLayout layout,
                                            std::span<const int64_t> actual_seq_qlen) {
  const detail::OpScope scope(context, "ms::ring_attention_update", previous.out, current.out);
  const Sizes sizes = check(previous, layout, actual_seq_qlen);
  const core::Dims& statistics = previous.softmax_max.shape();
  detail::check_shape(current.out, previous.out.shape(), "ring_attention_update: current out");
  detail::check_dtype(current.out, previous.out.dtype(), "ring_attention_update: current out");
  for (const TensorView* x : {&previous.softmax_sum, &current.softmax_max, &current.softmax_sum}) {
    detail::check_shape(*x, statistics, "ring_attention_update: a maximum or sum");
  }
  const auto make = [&] { return Tensor(context.arena, core::DType::kFp32, statistics, core::MemoryTag::kAct); };
  FusionAttentionResult result{Tensor(context.arena, previous.out.dtype(), previous.out.shape(), core::MemoryTag::kAct),
                               make(), make()};
  const auto kernel = scope.kernel(-1, 3 * previous.out.size_bytes() + 6 * result.softmax_max.size_bytes());
  const float *m1 = previous.softmax_max.data<float>(), *m2 = current.softmax_max.data<float>();
  const float *s1 = previous.softmax_sum.data<float>(), *s2 = current.softmax_sum.data<float>();
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  detail::with_type(previous.out.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.rows, detail::row_grain(sizes.heads * sizes.d), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t head = 0; head < sizes.heads; ++head) {
          const int64_t i = sizes.statistic(row, head), at = (row * sizes.heads + head) * sizes.d;
          const float most = std::max(m1[i], m2[i]);
          const T* rows[2];
          float weights[2], sum = 0;
          int64_t count = 0;
          const auto take = [&](const TensorView& out, float max, float part) {
            if (max == kNothing) return;
            rows[count] = out.data<T>() + at;
            weights[count] = part * std::exp(max - most);
            sum += weights[count++];
          };
          take(previous.out, m1[i], s1[i]);
          take(current.out, m2[i], s2[i]);
          for (int64_t r = 0; r < count; ++r) weights[r] /= sum;
          kernels::weighted_row_sum(rows, weights, count, sizes.d, result.out.data<T>() + at);
          result.softmax_max.data<float>()[i] = most;
          result.softmax_sum.data<float>()[i] = sum;
        }
      }
    });
  });
  return result;
}

}  // namespace ms::ops
