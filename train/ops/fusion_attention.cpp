#include "train/ops/fusion_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/typed.h"
#include "train/ops/detail/workspaces.h"

namespace ms::ops {
namespace {

using core::Dims;
using core::Tensor;
using core::TensorView;
using kernels::Visible;

template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) throw core::Error(core::ErrorCode::kInvalidArgument, core::cat("fusion_attention: ", parts...));
}

// The strides of a tensor.
struct Placement {
  int64_t batch = 0, seq = 0, heads = 0, d = 0;
  int64_t batch_stride = 0, seq_stride = 0, head_stride = 0;
};

// d: head dimension, for layouts that do not contain it.
Placement place(const TensorView& x, AttentionLayout layout, int64_t d) {
  const size_t axes = layout == AttentionLayout::kBsnd || layout == AttentionLayout::kBnsd ? 4 : 3;
  require(x.shape().size() == axes, "a tensor is ", core::cat(x.shape()), ", and its layout has ", axes, " axes");
  Placement p;
  switch (layout) {
    case AttentionLayout::kBsh:
    case AttentionLayout::kSbh: {
      const bool batch_first = layout == AttentionLayout::kBsh;
      const int64_t h = x.dim(2);
      require(d > 0 && h % d == 0, "a width of ", h, " is not heads of ", d);
      p = {x.dim(batch_first ? 0 : 1), x.dim(batch_first ? 1 : 0), h / d, d};
      p.batch_stride = batch_first ? p.seq * h : h;
      p.seq_stride = batch_first ? h : p.batch * h;
      p.head_stride = d;
      return p;
    }
    case AttentionLayout::kBsnd:
      p = {x.dim(0), x.dim(1), x.dim(2), x.dim(3)};
      p.seq_stride = p.heads * p.d, p.batch_stride = p.seq * p.seq_stride, p.head_stride = p.d;
      return p;
    case AttentionLayout::kBnsd:
      p = {x.dim(0), x.dim(2), x.dim(1), x.dim(3)};
      p.seq_stride = p.d, p.head_stride = p.seq * p.d, p.batch_stride = p.heads * p.head_stride;
      return p;
    case AttentionLayout::kTnd:
      break;
  }
  p = {1, x.dim(0), x.dim(1), x.dim(2)};
  p.seq_stride = p.heads * p.d, p.head_stride = p.d;
  return p;
}

// The queries and keys of one sequence, as rows from the start of its batch.
struct Sequence {
  int64_t batch = 0;  // index for Placement
  int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
  Visible visible{};
};

// The shapes of a call, checked.
struct Problem {
  Placement q, kv;
  std::vector<Sequence> sequences;
  int64_t most_queries = 0, most_keys = 0;

  int64_t per_group() const { return q.heads / kv.heads; }
  int64_t q_offset(const Sequence& s, int64_t head) const {
    return s.batch * q.batch_stride + s.first_query * q.seq_stride + head * q.head_stride;
  }
  int64_t kv_offset(const Sequence& s, int64_t group) const {
    return s.batch * kv.batch_stride + s.first_key * kv.seq_stride + group * kv.head_stride;
  }
  kernels::AttentionShape shape(const Sequence& s) const {
    return {s.queries, s.keys, q.d, q.seq_stride, kv.seq_stride, q.head_stride};
  }
  kernels::AttentionShape largest() const {
    return {most_queries, most_keys, q.d, q.seq_stride, kv.seq_stride, q.head_stride};
  }
};

int64_t bound(int64_t tokens) { return tokens >= 2147483647 ? Visible::kAll : tokens; }

Visible visible_of(const FusionAttentionParams& params, SparseMode mode, const Sequence& s, size_t index) {
  const int64_t right_down = s.keys - s.queries;
  switch (mode) {
    case SparseMode::kDefaultMask:
      return {-bound(params.pre_tokens), bound(params.next_tokens)};
    case SparseMode::kAllMask:
      return {.last = Visible::kAll};
    case SparseMode::kLeftUpCausal:
      return {.last = 0};
    case SparseMode::kBand:
      return {right_down - bound(params.pre_tokens), right_down + bound(params.next_tokens)};
    case SparseMode::kPrefix:
    case SparseMode::kPrefixCompressed:
      return {.last = right_down, .prefix = params.prefix[index]};
    case SparseMode::kRightDownCausal:
    case SparseMode::kRightDownCausalBand:  // both of these are resolved by mode_of
    case SparseMode::kBandLeftUpCausal:
      break;
  }
  return {.last = right_down};
}

// The mode of one sequence, for the modes of sequences that were cut over ranks.
SparseMode mode_of(const FusionAttentionParams& params, const std::vector<Sequence>& sequences, size_t index) {
  const auto holds_queries = [](const Sequence& s) { return s.queries > 0; };
  if (params.sparse_mode == SparseMode::kRightDownCausalBand) {
    const auto last = std::find_if(sequences.rbegin(), sequences.rend(), holds_queries);
    const bool is_last = last != sequences.rend() && &*last == &sequences[index];
    return is_last ? SparseMode::kBand : SparseMode::kRightDownCausal;
  }
  if (params.sparse_mode == SparseMode::kBandLeftUpCausal) {
    const auto first = std::find_if(sequences.begin(), sequences.end(), holds_queries);
    const bool is_first = first != sequences.end() && &*first == &sequences[index];
    return is_first ? SparseMode::kBand : SparseMode::kLeftUpCausal;
  }
  return params.sparse_mode;
}

std::vector<Sequence> packed_sequences(const FusionAttentionParams& params, int64_t queries, int64_t keys) {
  const auto q_ends = params.actual_seq_qlen, kv_ends = params.actual_seq_kvlen;
  require(q_ends.size() == kv_ends.size() && !q_ends.empty(), q_ends.size(), " sequences end in q and ", kv_ends.size(),
          " in k and v; layout TND wants actual_seq_qlen and actual_seq_kvlen");
  std::vector<Sequence> sequences;
  int64_t q_begin = 0, kv_begin = 0;
  for (size_t i = 0; i < q_ends.size(); ++i) {
    require(q_ends[i] >= q_begin && kv_ends[i] >= kv_begin, "sequence ", i, " ends before it begins");
    sequences.push_back({0, q_begin, q_ends[i] - q_begin, kv_begin, kv_ends[i] - kv_begin});
    q_begin = q_ends[i], kv_begin = kv_ends[i];
  }
  require(q_begin == queries && kv_begin == keys, "sequences end at query ", q_begin, " of ", queries, " and at key ",
          kv_begin, " of ", keys);
  return sequences;
}

void check_mask(const Problem& problem, const FusionAttentionParams& params) {
  if (params.atten_mask == nullptr) {
    require(params.sparse_mode != SparseMode::kAllMask, "sparse mode 1 wants an atten_mask");
    return;
  }
  const TensorView& mask = *params.atten_mask;
  require(params.sparse_mode <= SparseMode::kAllMask, "sparse mode ", static_cast<int>(params.sparse_mode),
          " says what is hidden; it takes no atten_mask");
  require(mask.dtype() == core::DType::kUInt8 || mask.dtype() == core::DType::kBool, "atten_mask is ",
          core::dtype_name(mask.dtype()), ", expected uint8 or bool");
  const Dims& shape = mask.shape();
  bool fits = false;
  if (shape.size() == 2) {
    fits = params.layout == AttentionLayout::kTnd ? shape[0] >= problem.most_queries && shape[1] >= problem.most_keys
                                                  : shape[0] == problem.most_queries && shape[1] == problem.most_keys;
  } else if (shape.size() == 4 && params.layout != AttentionLayout::kTnd) {
    fits = shape[0] == problem.q.batch && (shape[1] == 1 || shape[1] == problem.q.heads) &&
           shape[2] == problem.most_queries && shape[3] == problem.most_keys;
  }
  require(fits, "atten_mask is ", core::cat(shape), " for ", problem.most_queries, " queries and ", problem.most_keys,
          " keys");
}

bool is_alibi(const FusionAttentionParams& params) { return params.pse_type >= PositionBias::kAlibi; }

void check_pse(const Problem& problem, const FusionAttentionParams& params) {
  if (params.pse == nullptr) {
    require(!is_alibi(params), "pse_type ", static_cast<int>(params.pse_type), " wants slopes in pse");
    return;
  }
  const Dims& shape = params.pse->shape();
  require(params.pse->dtype() == core::DType::kFp32, "pse is ", core::dtype_name(params.pse->dtype()),
          ", expected fp32");
  const auto batch = static_cast<int64_t>(problem.sequences.size()), heads = problem.q.heads;
  if (is_alibi(params)) {
    require(shape == Dims{heads} || shape == Dims{batch, heads}, "slopes are ", core::cat(shape), " for ", batch,
            " sequences of ", heads, " heads");
    return;
  }
  require(params.layout != AttentionLayout::kTnd, "layout TND takes a pse of slopes alone, pse_type 2 or 3");
  require(shape.size() == 4 && (shape[0] == 1 || shape[0] == batch) && shape[1] == heads &&
              (shape[2] == 1 || shape[2] == problem.most_queries) && shape[3] == problem.most_keys,
          "pse is ", core::cat(shape), ", expected [", batch, " or 1, ", heads, ", ", problem.most_queries, " or 1, ",
          problem.most_keys, "]");
}

Problem check(const TensorView& q, const TensorView& k, const TensorView& v, const FusionAttentionParams& params) {
  const bool packed = params.layout == AttentionLayout::kTnd;
  Problem problem;
  require(params.head_num > 0 && !q.shape().empty(), params.head_num, " heads of q ", core::cat(q.shape()));
  const bool wide = params.layout == AttentionLayout::kBsh || params.layout == AttentionLayout::kSbh;
  require(!wide || q.dim(-1) % params.head_num == 0, "a width of ", q.dim(-1), " is not ", params.head_num, " heads");
  problem.q = place(q, params.layout, wide ? q.dim(-1) / params.head_num : 0);
  problem.kv = place(k, params.layout, problem.q.d);
  require(problem.q.heads == params.head_num, "q has ", problem.q.heads, " heads, head_num is ", params.head_num);
  require(problem.kv.heads > 0 && problem.q.heads % problem.kv.heads == 0, problem.q.heads, " heads of q over ",
          problem.kv.heads, " of k");
  require(problem.kv.d == problem.q.d && problem.kv.batch == problem.q.batch && v.shape() == k.shape(), "q is ",
          core::cat(q.shape()), ", k ", core::cat(k.shape()), ", v ", core::cat(v.shape()));
  require(k.dtype() == q.dtype() && v.dtype() == q.dtype(), "q, k and v are not of one dtype");
  if (packed) {
    problem.sequences = packed_sequences(params, problem.q.seq, problem.kv.seq);
  } else {
    require(params.actual_seq_qlen.empty() && params.actual_seq_kvlen.empty(),
            "lengths of sequences are of layout TND");
    for (int64_t batch = 0; batch < problem.q.batch; ++batch) {
      problem.sequences.push_back({batch, 0, problem.q.seq, 0, problem.kv.seq});
    }
  }
  const bool of_packed = params.sparse_mode >= SparseMode::kRightDownCausalBand;
  require(packed ? params.sparse_mode != SparseMode::kPrefix : !of_packed, "sparse mode ",
          static_cast<int>(params.sparse_mode), packed ? " is not of layout TND" : " is of layout TND alone");
  const bool prefixed =
      params.sparse_mode == SparseMode::kPrefix || params.sparse_mode == SparseMode::kPrefixCompressed;
  require(params.prefix.size() == (prefixed ? problem.sequences.size() : 0), params.prefix.size(), " prefixes for ",
          problem.sequences.size(), " sequences in sparse mode ", static_cast<int>(params.sparse_mode));
  for (size_t i = 0; i < problem.sequences.size(); ++i) {
    Sequence& s = problem.sequences[i];
    s.visible = visible_of(params, mode_of(params, problem.sequences, i), s, i);
    problem.most_queries = std::max(problem.most_queries, s.queries);
    problem.most_keys = std::max(problem.most_keys, s.keys);
  }
  check_mask(problem, params);
  check_pse(problem, params);
  return problem;
}

// The kernel's parameters for one head of one sequence. dpse: shape of pse; may be null.
kernels::AttentionParams kernel_params(const Problem& problem, const FusionAttentionParams& params, size_t sequence,
                                       int64_t head, float* dpse = nullptr) {
  const int64_t heads = problem.q.heads, batch = static_cast<int64_t>(sequence);
  kernels::AttentionParams result;
  result.scale = static_cast<float>(params.scale);
  result.visible = problem.sequences[sequence].visible;
  result.dropout = params.dropout;
  result.dropout.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(head);
  result.sample = batch;
  kernels::ScoreBias& bias = result.bias;
  if (params.atten_mask != nullptr) {
    const Dims& shape = params.atten_mask->shape();
    const int64_t matrix = shape.size() == 2 ? 0 : shape[1] == 1 ? batch : batch * heads + head;
    bias.mask_stride = shape.back();
    bias.mask = reinterpret_cast<const uint8_t*>(params.atten_mask->bytes()) +
                matrix * bias.mask_stride * shape[shape.size() - 2];
  }
  if (params.pse == nullptr) return result;
  const Dims& shape = params.pse->shape();
  const float* values = params.pse->data<float>();
  if (is_alibi(params)) {
    bias.slope = values[(shape.size() == 2 ? batch * heads : 0) + head];
    bias.distance = params.q_start_idx - params.kv_start_idx;
    bias.root = params.pse_type == PositionBias::kAlibiRoot;
    return result;
  }
  const int64_t matrix = ((shape[0] == 1 ? 0 : batch * heads) + head) * shape[2] * shape[3];
  bias.values = values + matrix;
  if (dpse != nullptr) bias.gradient = dpse + matrix;
  bias.row_stride = shape[2] == 1 ? 0 : shape[3];
  bias.factor = params.pse_type == PositionBias::kBeforeScale ? result.scale : 1.0F;
  return result;
}

// 2 d for every visible score, over all heads.
int64_t product_flops(const Problem& problem) {
  int64_t pairs = 0;
  for (const Sequence& s : problem.sequences) {
    for (int64_t i = 0; i < s.queries; ++i) {
      const int64_t end = std::clamp<int64_t>(std::max(i + s.visible.last + 1, s.visible.prefix), 0, s.keys);
      pairs += end - std::clamp<int64_t>(i + s.visible.first, 0, end);
    }
  }
  return 2 * problem.q.d * problem.q.heads * pairs;
}

// Rows of statistics in memory order: [b, n, s], or [t, n].
struct StatisticRows {
  int64_t first, stride;
};
StatisticRows statistic_rows(const Problem& problem, const FusionAttentionParams& params, size_t sequence,
                             int64_t head) {
  const int64_t heads = problem.q.heads;
  if (params.layout == AttentionLayout::kTnd) return {problem.sequences[sequence].first_query * heads + head, heads};
  return {(static_cast<int64_t>(sequence) * heads + head) * problem.q.seq, 1};
}

Dims statistic_shape(const Problem& problem, const FusionAttentionParams& params) {
  if (params.layout == AttentionLayout::kTnd) return {problem.q.seq, problem.q.heads};
  return {problem.q.batch, problem.q.heads, problem.q.seq};
}

}  // namespace

FusionAttentionResult fusion_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v,
                                       const FusionAttentionParams& params) {
  const detail::OpScope scope(context, "ms::fusion_attention", q, k, v);
  const Problem problem = check(q, k, v, params);
  const auto make = [&] {
    return Tensor(context.arena, core::DType::kFp32, statistic_shape(problem, params), core::MemoryTag::kAct);
  };
  FusionAttentionResult result{Tensor(context.arena, q.dtype(), q.shape(), core::MemoryTag::kAct), make(), make()};
  const int64_t flops = 2 * product_flops(problem), heads = problem.q.heads;
  context.flops += flops;
  const auto kernel = scope.kernel(flops, 2 * q.size_bytes() + k.size_bytes() + v.size_bytes());
  const auto tasks = static_cast<int64_t>(problem.sequences.size()) * heads;
  detail::Workspaces workspaces(context, tasks,
                                kernels::attention_workspace(problem.largest()) + 3 * problem.most_queries);
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      float* const lse = workspace + kernels::attention_workspace(problem.largest());
      float *const max = lse + problem.most_queries, *const sum = max + problem.most_queries;
      for (int64_t task = begin; task < end; ++task) {
        const auto index = static_cast<size_t>(task / heads);
        const int64_t head = task % heads;
        const Sequence& s = problem.sequences[index];
        const int64_t at = problem.q_offset(s, head), kv = problem.kv_offset(s, head / problem.per_group());
        kernels::attention(problem.shape(s), q.data<T>() + at, k.data<T>() + kv, v.data<T>() + kv,
                           kernel_params(problem, params, index, head), result.out.data<T>() + at, {lse, max, sum},
                           workspace);
        const StatisticRows target = statistic_rows(problem, params, index, head);
        for (int64_t i = 0; i < s.queries; ++i) {
          result.softmax_max.data<float>()[target.first + i * target.stride] = max[i];
          result.softmax_sum.data<float>()[target.first + i * target.stride] = sum[i];
        }
      }
    });
  });
  return result;
}

QkvGradients fusion_attention_backward(Context& context, const TensorView& dout, const TensorView& q,
                                       const TensorView& k, const TensorView& v, const FusionAttentionResult& forward,
                                       const FusionAttentionParams& params, Tensor* dpse) {
  const detail::OpScope scope(context, "ms::fusion_attention_backward", dout, q, k, v);
  const Problem problem = check(q, k, v, params);
  for (const TensorView* x : {&dout, &forward.out.view()}) {
    detail::check_shape(*x, q.shape(), "fusion_attention_backward: dout or out");
    detail::check_dtype(*x, q.dtype(), "fusion_attention_backward: dout or out");
  }
  for (const Tensor* x : {&forward.softmax_max, &forward.softmax_sum}) {
    detail::check_shape(*x, statistic_shape(problem, params), "fusion_attention_backward: softmax_max or softmax_sum");
  }
  const auto make = [&](const TensorView& like) {
    return Tensor(context.arena, like.dtype(), like.shape(), core::MemoryTag::kAct);
  };
  QkvGradients result{make(q), make(k), make(v)};
  if (dpse != nullptr) {
    require(params.pse != nullptr && !is_alibi(params), "dpse is asked for, and there is no pse but slopes at most");
    *dpse = Tensor::zeros(context.arena, core::DType::kFp32, params.pse->shape(), core::MemoryTag::kAct);
  }
  float* const pse_gradient = dpse == nullptr ? nullptr : dpse->data<float>();
  const int64_t flops = 4 * product_flops(problem), groups = problem.kv.heads, per_group = problem.per_group();
  context.flops += flops;
  const auto kernel = scope.kernel(flops, 4 * q.size_bytes() + 4 * k.size_bytes());
  // A task is a group of heads in one sequence, or, if sequences share the gradient of a bias, in all of them in order.
  const auto sequences = static_cast<int64_t>(problem.sequences.size());
  const int64_t in_turn = dpse != nullptr && dpse->dim(0) == 1 ? sequences : 1;
  const int64_t tasks = sequences * groups / std::max<int64_t>(in_turn, 1);
  const int64_t workspace_floats = kernels::attention_backward_workspace(problem.largest());
  detail::Workspaces workspaces(context, tasks, workspace_floats + per_group * problem.most_queries);
  detail::with_type(q.dtype(), [&]<class T>() {
    context.pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
      float* const workspace = workspaces.take();
      float* const lse = workspace + workspace_floats;
      std::vector<kernels::AttentionParams> head_params(static_cast<size_t>(per_group));
      const auto backward = [&](size_t index, int64_t group) {
        const int64_t first_head = group * per_group;
        const Sequence& s = problem.sequences[index];
        for (int64_t i = 0; i < per_group; ++i) {
          head_params[static_cast<size_t>(i)] = kernel_params(problem, params, index, first_head + i, pse_gradient);
          const StatisticRows from = statistic_rows(problem, params, index, first_head + i);
          for (int64_t row = 0; row < s.queries; ++row) {
            lse[i * s.queries + row] = forward.softmax_max.data<float>()[from.first + row * from.stride] +
                                       std::log(forward.softmax_sum.data<float>()[from.first + row * from.stride]);
          }
        }
        const int64_t at = problem.q_offset(s, first_head), kv = problem.kv_offset(s, group);
        kernels::attention_backward(problem.shape(s), per_group, dout.data<T>() + at, q.data<T>() + at,
                                    k.data<T>() + kv, v.data<T>() + kv, forward.out.data<T>() + at, lse,
                                    head_params.data(), result.dq.data<T>() + at, result.dk.data<T>() + kv,
                                    result.dv.data<T>() + kv, workspace);
      };
      for (int64_t task = begin; task < end; ++task) {
        const auto first = static_cast<size_t>(task / groups * in_turn);
        for (size_t i = 0; i < static_cast<size_t>(in_turn); ++i) backward(first + i, task % groups);
      }
    });
  });
  return result;
}

}  // namespace ms::ops
