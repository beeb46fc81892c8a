#include "train/ops/attention_sink.h"

#include <cmath>
#include <vector>

#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/row_scale.h"

namespace ms::ops {

using core::TensorView;

namespace {

struct SinkSizes {
  int64_t seq, batch, heads, head_dim;
};

SinkSizes checked_sizes(const TensorView& out, const TensorView& lse, const TensorView* sinks) {
  MS_CHECK(out.shape().size() == 4, "attention_sink: out is ", core::cat(out.shape()), ", not [s, b, nh, d_v]");
  const SinkSizes sizes{out.dim(0), out.dim(1), out.dim(2), out.dim(3)};
  detail::check_shape(lse, {sizes.batch, sizes.heads, sizes.seq}, "attention_sink: lse");
  detail::check_dtype(lse, core::DType::kFp32, "attention_sink: lse");
  if (sinks != nullptr) detail::check_size(*sinks, sizes.heads, "attention_sink: sinks");
  return sizes;
}

std::vector<float> scores_of(const TensorView* sinks, int64_t heads) {
  std::vector<float> scores(static_cast<size_t>(heads), 0.0F);
  if (sinks == nullptr) return scores;
  detail::with_type(sinks->dtype(), [&]<class T>() {
    for (int64_t head = 0; head < heads; ++head)
      scores[static_cast<size_t>(head)] = static_cast<float>(sinks->data<T>()[head]);
  });
  return scores;
}

}  // namespace

// softmax(scores, sink) = softmax(scores) * exp(lse - lse'), lse' = log(exp(lse) + exp(sink)).
void add_attention_sink(Context& context, const TensorView& out, const TensorView& lse, const TensorView* sinks) {
  const detail::OpScope scope(context, "ms::attention_sink", out, lse);
  const SinkSizes sizes = checked_sizes(out, lse, sinks);
  const std::vector<float> scores = scores_of(sinks, sizes.heads);
  const auto kernel = scope.kernel(-1, 2 * out.size_bytes());
  detail::with_type(out.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.seq, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t batch = 0; batch < sizes.batch; ++batch) {
          for (int64_t head = 0; head < sizes.heads; ++head) {
            float& statistic = lse.data<float>()[(batch * sizes.heads + head) * sizes.seq + i];
            const float score = scores[static_cast<size_t>(head)], largest = std::max(statistic, score);
            const float with_sink = largest + std::log(std::exp(statistic - largest) + std::exp(score - largest));
            const float factor = std::exp(statistic - with_sink);
            statistic = with_sink;
            T* const row = out.data<T>() + ((i * sizes.batch + batch) * sizes.heads + head) * sizes.head_dim;
            for (int64_t k = 0; k < sizes.head_dim; ++k) row[k] = static_cast<T>(factor * static_cast<float>(row[k]));
          }
        }
      }
    });
  });
}

// Of score p_sink = exp(sink - lse') of each row: dL/dsink = -p_sink * rowsum(dout * out).
void attention_sink_gradient(Context& context, const TensorView& dout, const TensorView& out, const TensorView& lse,
                             const TensorView& sinks, const TensorView& dsinks) {
  const detail::OpScope scope(context, "ms::attention_sink_gradient", dout, lse);
  const SinkSizes sizes = checked_sizes(out, lse, &sinks);
  detail::check_shape(dout, out.shape(), "attention_sink_gradient: dout");
  detail::check_size(dsinks, sizes.heads, "attention_sink_gradient: dsinks");
  detail::check_dtype(dsinks, core::DType::kFp32, "attention_sink_gradient: dsinks");
  const std::vector<float> scores = scores_of(&sinks, sizes.heads);
  const core::Tensor dots = row_dots(context, dout, out);  // [s * b * nh]
  for (int64_t head = 0; head < sizes.heads; ++head) {
    double sum = 0;
    for (int64_t batch = 0; batch < sizes.batch; ++batch) {
      const float* const statistics = lse.data<float>() + (batch * sizes.heads + head) * sizes.seq;
      for (int64_t i = 0; i < sizes.seq; ++i) {
        const double share = std::exp(static_cast<double>(scores[static_cast<size_t>(head)] - statistics[i]));
        sum += share * static_cast<double>(dots.data<float>()[(i * sizes.batch + batch) * sizes.heads + head]);
      }
    }
    dsinks.data<float>()[head] -= static_cast<float>(sum);
  }
}

}  // namespace ms::ops
