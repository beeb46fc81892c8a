#include "train/ops/cross_entropy.h"

#include <cstring>

#include "kernels/cross_entropy.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"

namespace ms::ops {
namespace {

using core::TensorView;

int64_t check_logits(const TensorView& logits, int64_t valid_columns) {
  MS_CHECK(logits.shape().size() == 2 && valid_columns >= 0 && valid_columns <= logits.dim(1), "cross entropy: logits ",
           core::cat(logits.shape()), " with ", valid_columns, " valid columns");
  detail::check_dtype(logits, core::DType::kFp32, "cross entropy: logits");
  return logits.dim(1);
}

template <class... Spans>
void check_rows(const TensorView& logits, const Spans&... spans) {
  for (const size_t size : {spans.size()...}) {
    MS_CHECK(static_cast<int64_t>(size) == logits.dim(0), "cross entropy: ", size, " values for ", logits.dim(0),
             " rows");
  }
}

template <class Body>
void for_rows(Context& context, const TensorView& logits, const Body& body) {
  context.pool.parallel_for(logits.dim(0), detail::row_grain(logits.dim(1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      body(static_cast<size_t>(row), logits.data<float>() + row * logits.dim(1));
  });
}

}  // namespace

void row_max(Context& context, const TensorView& logits, int64_t valid_columns, std::span<float> max) {
  const detail::OpScope scope(context, "ms::row_max", logits);
  check_logits(logits, valid_columns);
  check_rows(logits, max);
  const auto kernel = scope.kernel(-1, logits.size_bytes());
  for_rows(context, logits, [&](size_t i, const float* row) { max[i] = kernels::row_max(row, valid_columns); });
}

void row_sums(Context& context, const TensorView& logits, int64_t valid_columns, std::span<const float> max,
              std::span<const int32_t> labels, int64_t first_id, std::span<float> sum_exp,
              std::span<float> target_logit) {
  const detail::OpScope scope(context, "ms::row_sums", logits);
  check_logits(logits, valid_columns);
  check_rows(logits, max, labels, sum_exp, target_logit);
  const auto kernel = scope.kernel(-1, logits.size_bytes());
  for_rows(context, logits, [&](size_t i, const float* row) {
    sum_exp[i] = kernels::row_sum_exp(row, valid_columns, max[i]);
    const int64_t label = labels[i] - first_id;
    target_logit[i] = label >= 0 && label < valid_columns ? row[label] : 0.0F;
  });
}

void cross_entropy_backward(Context& context, const TensorView& logits, int64_t valid_columns,
                            std::span<const float> max, std::span<const float> sum_exp, std::span<const int32_t> labels,
                            int64_t first_id, std::span<const float> row_scale) {
  const detail::OpScope scope(context, "ms::cross_entropy_backward", logits);
  const int64_t columns = check_logits(logits, valid_columns);
  check_rows(logits, max, sum_exp, labels, row_scale);
  const auto kernel = scope.kernel(-1, 2 * logits.size_bytes());
  for_rows(context, logits, [&](size_t i, float* row) {
    kernels::row_cross_entropy_backward(row, valid_columns, max[i], sum_exp[i], labels[i] - first_id, row_scale[i]);
    std::memset(row + valid_columns, 0, static_cast<size_t>(columns - valid_columns) * sizeof(float));
  });
}

}  // namespace ms::ops
