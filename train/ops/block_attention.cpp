#include "train/ops/block_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/attention.h"
#include "train/ops/detail/attention_sizes.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/detail/workspaces.h"

namespace ms::ops {
namespace {

using core::TensorView;

struct BlockSizes : detail::AttentionSizes {
  int64_t keys;  // seq: of the queries
};

BlockSizes check_block(const TensorView& q, const TensorView& k, const TensorView& v, const TensorView& out,
                       const TensorView& lse, const QueryBlock& block, const AttentionParams& params) {
  MS_CHECK(q.shape().size() == 4 && k.shape().size() == 4 && v.shape().size() == 4, "block_attention: q is ",
           core::cat(q.shape()), ", k ", core::cat(k.shape()), ", v ", core::cat(v.shape()));
  const BlockSizes sizes{{q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)}, k.dim(0)};
  MS_CHECK(sizes.groups > 0 && sizes.heads % sizes.groups == 0 && block.first_row >= 0 && block.distance >= 0 &&
               block.first_row + block.rows <= sizes.seq && params.document_ends.empty(),
           "block_attention: ", sizes.heads, " heads in ", sizes.groups, " groups, rows ", block.first_row, " on, ",
           block.rows, " of ", sizes.seq);
  detail::check_shape(k, {sizes.keys, sizes.batch, sizes.groups, sizes.d}, "block_attention: k");
  detail::check_shape(v, {sizes.keys, sizes.batch, sizes.groups, sizes.d_v}, "block_attention: v");
  detail::check_shape(out, {sizes.seq, sizes.batch, sizes.heads, sizes.d_v}, "block_attention: out");
  detail::check_shape(lse, {sizes.batch, sizes.heads, sizes.seq}, "block_attention: lse");
  for (const TensorView* x : {&k, &v, &out}) detail::check_dtype(*x, q.dtype(), "block_attention: k, v or out");
  return sizes;
}

// FLOPs as product_pair_flops counts them: a score on the diagonal is half a visible one.
int64_t block_flops(const BlockSizes& sizes, const QueryBlock& block, const AttentionParams& params) {
  int64_t scores = 0;  // twice the visible ones of a head
  for (int64_t i = block.distance; i < block.distance + block.rows; ++i) {
    const int64_t begin = params.window > 0 ? std::max<int64_t>(0, i + 1 - params.window) : 0;
    const int64_t end = std::min(i + 1, sizes.keys);
    scores += std::max<int64_t>(0, 2 * (end - begin) - (i < sizes.keys && begin == 0 ? 1 : 0));
  }
  return scores * (sizes.d + sizes.d_v) * sizes.heads * sizes.batch;
}

kernels::AttentionParams params_of_block(const AttentionParams& params, const QueryBlock& block, int64_t sample,
                                         int64_t head) {
  kernels::AttentionParams result = detail::head_params(params, sample, head);
  result.visible.last = block.distance;
  if (params.window > 0) result.visible.first = block.distance + 1 - params.window;
  result.first_row = result.bias.distance = block.distance;
  return result;
}

}  // namespace

void block_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v,
                     const QueryBlock& block, const AttentionParams& params, const TensorView& out,
                     const TensorView& lse) {
  const detail::OpScope scope(context, "ms::block_attention", q, k, v);
  const BlockSizes sizes = check_block(q, k, v, out, lse, block, params);
  const int64_t flops = block_flops(sizes, block, params);
  context.flops += flops;
  const auto kernel = scope.kernel(
      flops, (q.size_bytes() + out.size_bytes()) / sizes.seq * block.rows + k.size_bytes() + v.size_bytes());
  const kernels::AttentionShape shape = detail::attention_shape(sizes, block.rows, sizes.keys);
  detail::Workspaces workspaces(context, sizes.batch * sizes.heads, kernels::attention_workspace(shape));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.heads, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      for (int64_t head = begin; head < end; ++head) {  // [batch, heads], the order within a position
        const int64_t group = head / sizes.per_group();
        kernels::attention(shape, q.data<T>() + block.first_row * shape.q_stride + head * sizes.d,
                           k.data<T>() + group * sizes.d, v.data<T>() + group * sizes.d_v,
                           params_of_block(params, block, head / sizes.heads, head % sizes.heads),
                           out.data<T>() + block.first_row * shape.out_stride + head * sizes.d_v,
                           {lse.data<float>() + head * sizes.seq + block.first_row}, workspace);
      }
    });
  });
}

void block_attention_backward(Context& context, const TensorView& dout, const TensorView& q, const TensorView& k,
                              const TensorView& v, const TensorView& out, const TensorView& lse,
                              const QueryBlock& block, const AttentionParams& params, const BlockGradients& gradients) {
  const detail::OpScope scope(context, "ms::block_attention_backward", dout, q, k, v, out);
  const BlockSizes sizes = check_block(q, k, v, out, lse, block, params);
  detail::check_shape(dout, out.shape(), "block_attention_backward: dout");
  detail::check_shape(gradients.dq, q.shape(), "block_attention_backward: dq");
  detail::check_shape(gradients.dk, k.shape(), "block_attention_backward: dk");
  detail::check_shape(gradients.dv, v.shape(), "block_attention_backward: dv");
  const int64_t flops = 2 * block_flops(sizes, block, params);
  context.flops += flops;
  const auto kernel = scope.kernel(
      flops, 2 * ((q.size_bytes() + out.size_bytes()) / sizes.seq * block.rows + k.size_bytes() + v.size_bytes()));
  const kernels::AttentionShape shape = detail::attention_shape(sizes, block.rows, sizes.keys);
  const int64_t per_group = sizes.per_group();
  detail::Workspaces workspaces(context, sizes.batch * sizes.groups, kernels::attention_backward_workspace(shape));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.groups, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      std::vector<kernels::AttentionParams> of_heads(static_cast<size_t>(per_group));
      for (int64_t group = begin; group < end; ++group) {
        const int64_t head = group * per_group;
        for (int64_t i = 0; i < per_group; ++i)
          of_heads[static_cast<size_t>(i)] =
              params_of_block(params, block, group / sizes.groups, (head + i) % sizes.heads);
        const int64_t query = block.first_row * shape.q_stride + head * sizes.d;
        const int64_t result_at = block.first_row * shape.out_stride + head * sizes.d_v;
        const int64_t key = group * sizes.d, value = group * sizes.d_v;
        kernels::attention_backward(
            shape, per_group, dout.data<T>() + result_at, q.data<T>() + query, k.data<T>() + key, v.data<T>() + value,
            out.data<T>() + result_at, lse.data<float>() + head * sizes.seq + block.first_row, of_heads.data(),
            gradients.dq.data<T>() + query, gradients.dk.data<T>() + key, gradients.dv.data<T>() + value, workspace);
      }
    });
  });
}

}  // namespace ms::ops
