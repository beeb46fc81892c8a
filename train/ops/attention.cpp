#include "train/ops/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>

#include "kernels/attention.h"
#include "train/ops/detail/attention_sizes.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/detail/workspaces.h"

namespace ms::ops {
namespace {

using core::Tensor;
using core::TensorView;
using detail::check_qkv;
using Sizes = detail::AttentionSizes;

// The parameters of all heads, [batch, heads], allocated from the arena.
class HeadParams {
 public:
  HeadParams(Context& context, const Sizes& sizes, const AttentionParams& params)
      : memory_(
            context.arena.allocate(sizes.batch * sizes.heads * static_cast<int64_t>(sizeof(kernels::AttentionParams)),
                                   core::MemoryTag::kTmp)) {
    for (int64_t head = 0; head < sizes.batch * sizes.heads; ++head) {
      std::construct_at(data() + head, detail::head_params(params, head / sizes.heads, head % sizes.heads));
    }
  }
  kernels::AttentionParams* data() const { return reinterpret_cast<kernels::AttentionParams*>(memory_.data()); }

 private:
  static_assert(std::is_trivially_destructible_v<kernels::AttentionParams>);
  core::Buffer memory_;
};

// Copies between the packed tensor and its parts for one (position, batch, group).
enum class PackDirection { kSplit, kMerge };

// gate: null without one.
void move_qkv(Context& context, const Sizes& sizes, PackDirection direction, const TensorView& packed,
              const TensorView& q, const TensorView& k, const TensorView& v, const TensorView* gate) {
  const int64_t element = core::size_of(packed.dtype()), d = sizes.d * element;
  const int64_t query = sizes.per_group() * d, gates = gate == nullptr ? 0 : query;
  const int64_t row = sizes.batch * sizes.groups;
  const auto move = [direction](std::byte* packed_part, std::byte* part, int64_t bytes) {
    if (direction == PackDirection::kSplit) {
      std::memcpy(part, packed_part, static_cast<size_t>(bytes));
    } else {
      std::memcpy(packed_part, part, static_cast<size_t>(bytes));
    }
  };
  // [seq, batch, group] has the same order in all tensors.
  context.pool.parallel_for(sizes.seq * row, detail::row_grain((query + gates + 2 * d) / element),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i) {
                                std::byte* from = packed.bytes() + i * (query + gates + 2 * d);
                                move(from, q.bytes() + i * query, query);
                                if (gate != nullptr) move(from + query, gate->bytes() + i * gates, gates);
                                from += query + gates;
                                move(from, k.bytes() + i * d, d);
                                move(from + d, v.bytes() + i * d, d);
                              }
                            });
}

// Elements of a packed row.
int64_t packed_width(const Sizes& sizes, bool has_gate) {
  return sizes.groups * ((has_gate ? 2 : 1) * sizes.per_group() + 2) * sizes.d;
}

}  // namespace

std::vector<float> alibi_slopes(int64_t heads) {
  const int64_t power = std::bit_floor(static_cast<uint64_t>(heads));
  std::vector<float> slopes;
  const auto add = [&](double k, int64_t of) {
    slopes.push_back(static_cast<float>(std::exp2(-8 * k / static_cast<double>(of))));
  };
  for (int64_t k = 1; k <= power; ++k) add(static_cast<double>(k), power);
  for (int64_t k = 0; k < heads - power; ++k) add(static_cast<double>(2 * k + 1), 2 * power);
  return slopes;
}

QkvTensors split_qkv(Context& context, const TensorView& packed, int64_t num_heads, int64_t num_groups,
                     int64_t head_dim, bool has_gate) {
  const detail::OpScope scope(context, "ms::split_qkv", packed);
  const Sizes sizes{packed.dim(0), packed.dim(1), num_heads, num_groups, head_dim};
  MS_CHECK(num_groups > 0 && num_heads % num_groups == 0, "split_qkv: ", num_heads, " heads in ", num_groups,
           " groups");
  detail::check_shape(packed, {sizes.seq, sizes.batch, packed_width(sizes, has_gate)}, "split_qkv: packed");
  const auto make = [&](int64_t heads) {
    return Tensor(context.arena, packed.dtype(), {sizes.seq, sizes.batch, heads, head_dim}, core::MemoryTag::kAct);
  };
  QkvTensors out{make(num_heads), make(num_groups), make(num_groups)};
  if (has_gate) out.gate = make(num_heads);
  const auto kernel = scope.kernel(-1, 2 * packed.size_bytes());
  move_qkv(context, sizes, PackDirection::kSplit, packed, out.q, out.k, out.v, has_gate ? &out.gate.view() : nullptr);
  return out;
}

Tensor merge_qkv(Context& context, const TensorView& dq, const TensorView& dk, const TensorView& dv,
                 const TensorView* dgate) {
  const detail::OpScope scope(context, "ms::merge_qkv", dq, dk, dv);
  const Sizes sizes = check_qkv(dq, dk, dv);
  MS_CHECK(sizes.d == sizes.d_v, "merge_qkv: heads of q and k have ", sizes.d, " elements, those of v ", sizes.d_v);
  if (dgate != nullptr) detail::check_shape(*dgate, dq.shape(), "merge_qkv: dgate");
  Tensor packed(context.arena, dq.dtype(), {sizes.seq, sizes.batch, packed_width(sizes, dgate != nullptr)},
                core::MemoryTag::kAct);
  const auto kernel = scope.kernel(-1, 2 * packed.size_bytes());
  move_qkv(context, sizes, PackDirection::kMerge, packed, dq, dk, dv, dgate);
  return packed;
}

AttentionResult causal_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v,
                                 const AttentionParams& params) {
  const detail::OpScope scope(context, "ms::causal_attention", q, k, v);
  const Sizes sizes = check_qkv(q, k, v);
  detail::check_documents(params, sizes);
  AttentionResult result{
      Tensor(context.arena, q.dtype(), sizes.out_shape(), core::MemoryTag::kAct),
      Tensor(context.arena, core::DType::kFp32, {sizes.batch, sizes.heads, sizes.seq}, core::MemoryTag::kAct)};
  const int64_t flops = detail::product_pair_flops(params, sizes);
  context.flops += flops;
  const auto kernel = scope.kernel(flops, q.size_bytes() + k.size_bytes() + v.size_bytes() + result.out.size_bytes());
  detail::Workspaces workspaces(context, sizes.batch * sizes.heads,
                                kernels::attention_workspace(detail::attention_shape(sizes, sizes.seq, sizes.seq)));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.heads, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      for (int64_t head = begin; head < end; ++head) {  // [batch, heads], the order within a position
        const int64_t sample = head / sizes.heads, group = head / sizes.per_group();
        kernels::AttentionParams of_head = detail::head_params(params, sample, head % sizes.heads);
        detail::for_each_document(params, sizes, sample, [&](int64_t first, int64_t behind) {
          const kernels::AttentionShape shape = detail::attention_shape(sizes, behind - first, behind - first);
          of_head.first_row = first;
          kernels::attention(shape, q.data<T>() + first * shape.q_stride + head * sizes.d,
                             k.data<T>() + first * shape.kv_stride + group * sizes.d,
                             v.data<T>() + first * shape.value_stride + group * sizes.d_v, of_head,
                             result.out.data<T>() + first * shape.out_stride + head * sizes.d_v,
                             {result.lse.data<float>() + head * sizes.seq + first}, workspace);
        });
      }
    });
  });
  return result;
}

QkvGradients causal_attention_backward(Context& context, const TensorView& dout, const TensorView& q,
                                       const TensorView& k, const TensorView& v, const TensorView& out,
                                       const TensorView& lse, const AttentionParams& params) {
  const detail::OpScope scope(context, "ms::causal_attention_backward", dout, q, k, v, out);
  const Sizes sizes = check_qkv(q, k, v);
  for (const TensorView* x : {&dout, &out}) {
    detail::check_size(*x, sizes.seq * sizes.batch * sizes.heads * sizes.d_v, "causal_attention_backward: dout or out");
    detail::check_dtype(*x, q.dtype(), "causal_attention_backward: dout or out");
  }
  detail::check_shape(lse, {sizes.batch, sizes.heads, sizes.seq}, "causal_attention_backward: lse");
  detail::check_documents(params, sizes);
  const auto make = [&](const TensorView& like) {
    return Tensor(context.arena, like.dtype(), like.shape(), core::MemoryTag::kAct);
  };
  QkvGradients result{make(q), make(k), make(v)};
  const int64_t flops = 2 * detail::product_pair_flops(params, sizes);
  context.flops += flops;
  const auto kernel = scope.kernel(flops, 2 * (q.size_bytes() + k.size_bytes() + v.size_bytes() + out.size_bytes()));
  const int64_t per_group = sizes.per_group();
  const HeadParams head_params(context, sizes, params);
  detail::Workspaces workspaces(
      context, sizes.batch * sizes.groups,
      kernels::attention_backward_workspace(detail::attention_shape(sizes, sizes.seq, sizes.seq)));
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(sizes.batch * sizes.groups, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      for (int64_t group = begin; group < end; ++group) {
        kernels::AttentionParams* const of_heads = head_params.data() + group * per_group;
        detail::for_each_document(params, sizes, group / sizes.groups, [&](int64_t first, int64_t behind) {
          const kernels::AttentionShape shape = detail::attention_shape(sizes, behind - first, behind - first);
          const int64_t head = group * per_group;
          const int64_t query = first * shape.q_stride + head * sizes.d;
          const int64_t key = first * shape.kv_stride + group * sizes.d;
          const int64_t value = first * shape.value_stride + group * sizes.d_v;
          const int64_t result_at = first * shape.out_stride + head * sizes.d_v;
          for (int64_t i = 0; i < per_group; ++i) of_heads[i].first_row = first;
          kernels::attention_backward(
              shape, per_group, dout.data<T>() + result_at, q.data<T>() + query, k.data<T>() + key, v.data<T>() + value,
              out.data<T>() + result_at, lse.data<float>() + head * sizes.seq + first, of_heads,
              result.dq.data<T>() + query, result.dk.data<T>() + key, result.dv.data<T>() + value, workspace);
        });
      }
    });
  });
  return result;
}

}  // namespace ms::ops
