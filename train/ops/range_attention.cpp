#include "train/ops/range_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/attention.h"
#include "train/ops/detail/attention_sizes.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/detail/workspaces.h"

namespace ms::ops {
namespace {

using core::TensorView;

struct RangeSizes : detail::AttentionSizes {
  int64_t keys;  // seq: of the queries
};

RangeSizes check_ranges(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                        const TensorView& lse, RowSpan rows, std::span<const AttentionRange> ranges) {
  MS_CHECK(q.shape().size() == 4 && k.shape().size() == 4 && v.shape().size() == 4, "range_attention: q is ",
           core::cat(q.shape()), ", k ", core::cat(k.shape()), ", v ", core::cat(v.shape()));
  const RangeSizes sizes{{q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)}, k.dim(0)};
  MS_CHECK(
      sizes.groups > 0 && sizes.heads % sizes.groups == 0 && rows.first >= 0 && rows.first + rows.count <= sizes.seq,
      "range_attention: ", sizes.heads, " heads in ", sizes.groups, " groups, rows ", rows.first, " on, ", rows.count,
      " of ", sizes.seq);
  for (const AttentionRange& of : ranges) {
    MS_CHECK(of.sample >= 0 && of.sample < sizes.batch && of.rows > 0 && of.keys > 0 && of.first_key >= 0 &&
                 of.first_key + of.keys <= sizes.keys && of.first_row >= rows.first &&
                 of.first_row + of.rows <= rows.first + rows.count && of.distance >= 0 && of.prefix >= 0 &&
                 of.prefix <= of.keys,
             "range_attention: rows ", of.first_row, " on, ", of.rows, ", and keys ", of.first_key, " on, ", of.keys,
             ", of sample ", of.sample);
  }
  detail::check_shape(k, {sizes.keys, sizes.batch, sizes.groups, sizes.d}, "range_attention: k");
  detail::check_shape(v, {sizes.keys, sizes.batch, sizes.groups, sizes.d_v}, "range_attention: v");
  detail::check_shape(out, {sizes.seq, sizes.batch, sizes.heads, sizes.d_v}, "range_attention: out");
  detail::check_shape(lse, {sizes.batch, sizes.heads, sizes.seq}, "range_attention: lse");
  for (const TensorView* x : {&k, &v, &out}) detail::check_dtype(*x, q.dtype(), "range_attention: k, v or out");
  return sizes;
}

// FLOPs as product_pair_flops counts them: a score on the diagonal is half a visible one, unless a window is full.
int64_t range_flops(const RangeSizes& sizes, std::span<const AttentionRange> ranges, int64_t window) {
  int64_t scores = 0;  // twice the visible ones of a head
  for (const AttentionRange& of : ranges) {
    if (of.runs.any()) {
      scores += detail::count_scores(of.runs, of.rows, of.keys);
      continue;
    }
    for (int64_t i = of.distance; i < of.distance + of.rows; ++i) {
      const int64_t begin = window > 0 ? std::max<int64_t>(0, i + 1 - window) : 0;
      const int64_t end = std::max(std::min(i + 1, of.keys), of.prefix);
      const bool is_full = i < of.prefix || (window > 0 && of.column + i >= window);
      scores += std::max<int64_t>(0, 2 * (end - begin) - (i < of.keys && !is_full ? 1 : 0));
    }
  }
  return scores * (sizes.d + sizes.d_v) * sizes.heads;
}

int64_t most_rows(std::span<const AttentionRange> ranges) {
  int64_t most = 1;
  for (const AttentionRange& of : ranges) most = std::max(most, of.rows);
  return most;
}
int64_t most_keys(std::span<const AttentionRange> ranges) {
  int64_t most = 1;
  for (const AttentionRange& of : ranges) most = std::max(most, of.keys);
  return most;
}

kernels::AttentionParams params_of_range(const AttentionParams& params, const AttentionRange& of, int64_t head) {
  kernels::AttentionParams result = detail::head_params(params, of.sample, head);
  result.visible.last = of.distance;
  result.visible.prefix = of.prefix;
  result.runs = of.runs;
  if (params.window > 0) result.visible.first = of.distance + 1 - params.window;
  result.first_row = of.position;
  result.first_column = of.column;
  result.bias.distance = of.distance;
  return result;
}

// Rows of a head, or a group of heads that follow one another, of one sample.
template <class T>
void clear_rows(const TensorView& x, RowSpan rows, int64_t sample, int64_t head, int64_t heads) {
  const int64_t d = x.dim(3);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    std::fill_n(x.data<T>() + ((row * x.dim(1) + sample) * x.dim(2) + head) * d, heads * d, T{});
  }
}

}  // namespace

void range_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v, RowSpan rows,
                     std::span<const AttentionRange> ranges, const AttentionParams& params, const TensorView& out,
                     const TensorView& lse) {
  const detail::OpScope scope(context, "ms::range_attention", q, k, v);
  const RangeSizes sizes = check_ranges(q, k, v, out, lse, rows, ranges);
  const int64_t flops = range_flops(sizes, ranges, params.window);
  context.flops += flops;
  const auto kernel = scope.kernel(
      flops, (q.size_bytes() + out.size_bytes()) / sizes.seq * rows.count + k.size_bytes() + v.size_bytes());
  detail::Workspaces workspaces(
      context, sizes.batch * sizes.heads,
      kernels::attention_workspace(detail::attention_shape(sizes, most_rows(ranges), most_keys(ranges))));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.heads, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      for (int64_t head = begin; head < end; ++head) {  // [batch, heads], the order within a position
        const int64_t sample = head / sizes.heads, group = head / sizes.per_group();
        float* const of_head = lse.data<float>() + head * sizes.seq;
        clear_rows<T>(out, rows, sample, head % sizes.heads, 1);
        std::fill_n(of_head + rows.first, rows.count, -std::numeric_limits<float>::infinity());
        for (const AttentionRange& of : ranges) {
          if (of.sample != sample) continue;
          const kernels::AttentionShape shape = detail::attention_shape(sizes, of.rows, of.keys);
          kernels::attention(shape, q.data<T>() + of.first_row * shape.q_stride + head * sizes.d,
                             k.data<T>() + of.first_key * shape.kv_stride + group * sizes.d,
                             v.data<T>() + of.first_key * shape.value_stride + group * sizes.d_v,
                             params_of_range(params, of, head % sizes.heads),
                             out.data<T>() + of.first_row * shape.out_stride + head * sizes.d_v,
                             {of_head + of.first_row}, workspace);
        }
      }
    });
  });
}

void range_attention_backward(Context& context, const TensorView& dout, const TensorView& q, const TensorView& k,
                              const TensorView& v, const TensorView& out, const TensorView& lse, RowSpan rows,
                              std::span<const AttentionRange> ranges, const AttentionParams& params,
                              const RangeGradients& gradients) {
  const detail::OpScope scope(context, "ms::range_attention_backward", dout, q, k, v, out);
  const RangeSizes sizes = check_ranges(q, k, v, out, lse, rows, ranges);
  detail::check_shape(dout, out.shape(), "range_attention_backward: dout");
  detail::check_shape(gradients.dq, q.shape(), "range_attention_backward: dq");
  detail::check_shape(gradients.dk, k.shape(), "range_attention_backward: dk");
  detail::check_shape(gradients.dv, v.shape(), "range_attention_backward: dv");
  const int64_t flops = 2 * range_flops(sizes, ranges, params.window);
  context.flops += flops;
  const auto kernel = scope.kernel(
      flops, 2 * ((q.size_bytes() + out.size_bytes()) / sizes.seq * rows.count + k.size_bytes() + v.size_bytes()));
  const int64_t per_group = sizes.per_group();
  detail::Workspaces workspaces(
      context, sizes.batch * sizes.groups,
      kernels::attention_backward_workspace(detail::attention_shape(sizes, most_rows(ranges), most_keys(ranges))));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.groups, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      std::vector<kernels::AttentionParams> of_heads(static_cast<size_t>(per_group));
      for (int64_t group = begin; group < end; ++group) {
        const int64_t sample = group / sizes.groups, head = group * per_group;
        clear_rows<T>(gradients.dq, rows, sample, head % sizes.heads, per_group);
        for (const TensorView* x : {&gradients.dk, &gradients.dv}) {
          if (gradients.adds_to_keys) break;
          clear_rows<T>(*x, {.first = 0, .count = sizes.keys}, sample, group % sizes.groups, 1);
        }
        for (const AttentionRange& of : ranges) {
          if (of.sample != sample) continue;
          kernels::AttentionShape shape = detail::attention_shape(sizes, of.rows, of.keys);
          shape.adds_to_keys = gradients.adds_to_keys;
          for (int64_t i = 0; i < per_group; ++i)
            of_heads[static_cast<size_t>(i)] = params_of_range(params, of, (head + i) % sizes.heads);
          const int64_t query = of.first_row * shape.q_stride + head * sizes.d;
          const int64_t result = of.first_row * shape.out_stride + head * sizes.d_v;
          const int64_t key = of.first_key * shape.kv_stride + group * sizes.d;
          const int64_t value = of.first_key * shape.value_stride + group * sizes.d_v;
          kernels::attention_backward(
              shape, per_group, dout.data<T>() + result, q.data<T>() + query, k.data<T>() + key, v.data<T>() + value,
              out.data<T>() + result, lse.data<float>() + head * sizes.seq + of.first_row, of_heads.data(),
              gradients.dq.data<T>() + query, gradients.dk.data<T>() + key, gradients.dv.data<T>() + value, workspace);
        }
      }
    });
  });
}

}  // namespace ms::ops
