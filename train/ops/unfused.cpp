#include "train/ops/unfused.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/dropout.h"
#include "kernels/gemm/gemm.h"
#include "train/ops/detail/attention_sizes.h"
#include "train/ops/detail/gemm_operand.h"
#include "train/ops/detail/op_scope.h"
#include "train/ops/detail/sum_over_rows.h"
#include "train/ops/detail/typed.h"
#include "train/ops/detail/workspaces.h"
#include "train/ops/elementwise.h"

namespace ms::ops::unfused {
namespace {

using core::DType;
using core::Tensor;
using core::TensorView;

Tensor fp32(Context& context, core::Dims shape) {
  return Tensor(context.arena, DType::kFp32, std::move(shape), core::MemoryTag::kTmp);
}

// One pass: body(begin, end) over elements, or rows, of `bytes` in all.
template <class Body>
void pass(Context& context, std::string_view name, int64_t n, int64_t grain, int64_t bytes, const Body& body) {
  const detail::OpScope scope(context, name);
  const auto kernel = scope.kernel(-1, bytes);
  context.pool.parallel_for(n, grain, body);
}

// y[i] = f(i) for fp32 tensors of x's shape.
template <class Function>
Tensor elementwise(Context& context, std::string_view name, const TensorView& x, const Function& f) {
  Tensor y = fp32(context, x.shape());
  float* out = y.data<float>();
  pass(context, name, x.size(), detail::kGrainElements, 2 * x.size_bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = f(i);
  });
  return y;
}

Tensor multiply(Context& context, const TensorView& a, const TensorView& b) {
  const float *first = a.data<float>(), *second = b.data<float>();
  return elementwise(context, "ms::multiply", a, [=](int64_t i) { return first[i] * second[i]; });
}

// x [.., h] times a factor of each row, fp32 [rows].
Tensor scale_rows(Context& context, const TensorView& x, const float* factors) {
  const float* in = x.data<float>();
  const int64_t h = x.dim(-1);
  return elementwise(context, "ms::scale_rows", x, [=](int64_t i) { return in[i] * factors[i / h]; });
}

// x [.., h] times (offset + gamma), gamma fp32 [h].
Tensor scale_columns(Context& context, const TensorView& x, const TensorView& gamma, double offset) {
  const float *in = x.data<float>(), *factors = gamma.data<float>();
  const int64_t h = x.dim(-1);
  const auto shift = static_cast<float>(offset);
  return elementwise(context, "ms::scale_columns", x, [=](int64_t i) { return in[i] * (shift + factors[i % h]); });
}

// fp32 [rows] of x [.., h].
Tensor row_means(Context& context, const TensorView& x) {
  const int64_t rows = detail::num_rows(x), h = x.dim(-1);
  Tensor means = fp32(context, {rows});
  pass(context, "ms::row_means", rows, detail::row_grain(h), x.size_bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double sum = 0;
      for (int64_t i = row * h; i < (row + 1) * h; ++i) sum += x.data<float>()[i];
      means.data<float>()[row] = static_cast<float>(sum / static_cast<double>(h));
    }
  });
  return means;
}

float silu(float x) { return x / (1.0F + std::exp(-x)); }
float silu_slope(float x) {
  const float sigmoid = 1.0F / (1.0F + std::exp(-x));
  return sigmoid * (1.0F + x * (1.0F - sigmoid));
}

// The halves of x [.., 2 f], as fp32 [.., f].
Tensor half_of(Context& context, const TensorView& x, bool second) {
  const int64_t f = x.dim(-1) / 2, first = second ? f : 0;
  Tensor half = fp32(context, detail::with_last(x.shape(), f));
  detail::with_type(x.dtype(), [&]<class T>() {
    pass(context, "ms::narrow", detail::num_rows(x), detail::row_grain(f), half.size_bytes(),
         [&](int64_t begin, int64_t end) {
           for (int64_t row = begin; row < end; ++row) {
             for (int64_t i = 0; i < f; ++i)
               half.data<float>()[row * f + i] = static_cast<float>(x.data<T>()[row * 2 * f + first + i]);
           }
         });
  });
  return half;
}

}  // namespace

Tensor rms_norm(Context& context, const TensorView& x, const TensorView& gamma, const NormParams& params,
                Tensor* rstd) {
  detail::check_size(gamma, x.dim(-1), "rms_norm: gamma");
  const Tensor wide = cast(context, x, DType::kFp32), weight = cast(context, gamma, DType::kFp32);
  const Tensor means = row_means(context, multiply(context, wide, wide));
  Tensor r(context.arena, DType::kFp32, {means.size()}, core::MemoryTag::kAct);
  pass(context, "ms::rsqrt", r.size(), detail::kGrainElements, 2 * r.size_bytes(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      r.data<float>()[row] = 1.0F / std::sqrt(means.data<float>()[row] + static_cast<float>(params.epsilon));
  });
  const Tensor normed = scale_rows(context, wide, r.data<float>());
  Tensor y = cast(context, scale_columns(context, normed, weight, params.gamma_offset), x.dtype());
  if (rstd != nullptr) *rstd = std::move(r);
  return y;
}

Tensor rms_norm_backward(Context& context, const TensorView& dy, const TensorView& x, const TensorView& gamma,
                         const NormParams& params, const TensorView& rstd, const TensorView& dgamma,
                         const TensorView* dresidual) {
  detail::check_shape(dy, x.shape(), "rms_norm_backward: dy");
  const int64_t rows = detail::num_rows(x), h = x.dim(-1);
  const Tensor gradient = cast(context, dy, DType::kFp32), weight = cast(context, gamma, DType::kFp32);
  const Tensor normed = scale_rows(context, cast(context, x, DType::kFp32), rstd.data<float>());
  const Tensor of_weight = multiply(context, gradient, normed);
  {
    const detail::OpScope scope(context, "ms::column_sums", of_weight);
    const auto kernel = scope.kernel(-1, of_weight.size_bytes());
    detail::sum_over_rows(context, rows, h, {&dgamma}, [&](int64_t first, int64_t count, float* partial) {
      for (int64_t row = first; row < first + count; ++row)
        kernels::accumulate(partial, of_weight.data<float>() + row * h, h);
    });
  }
  const Tensor scaled = scale_columns(context, gradient, weight, params.gamma_offset);
  const Tensor means = row_means(context, multiply(context, scaled, normed));
  const Tensor along = scale_rows(context, normed, means.data<float>());
  const float *all = scaled.data<float>(), *part = along.data<float>();
  const Tensor across = elementwise(context, "ms::subtract", scaled, [=](int64_t i) { return all[i] - part[i]; });
  Tensor dx = scale_rows(context, across, rstd.data<float>());
  if (dresidual != nullptr) add_inplace(context, dx, cast(context, *dresidual, DType::kFp32));
  return cast(context, dx, x.dtype());
}

Tensor swiglu(Context& context, const TensorView& x) {
  const Tensor gate = half_of(context, x, false), up = half_of(context, x, true);
  const float* in = gate.data<float>();
  const Tensor active = elementwise(context, "ms::silu", gate, [=](int64_t i) { return silu(in[i]); });
  return cast(context, multiply(context, active, up), x.dtype());
}

Tensor swiglu_backward(Context& context, const TensorView& dy, Tensor x) {
  const Tensor gate = half_of(context, x, false), up = half_of(context, x, true);
  const Tensor gradient = cast(context, dy.reshaped(gate.shape()), DType::kFp32);
  const float* in = gate.data<float>();
  const Tensor active = elementwise(context, "ms::silu", gate, [=](int64_t i) { return silu(in[i]); });
  const Tensor dup = multiply(context, gradient, active), dactive = multiply(context, gradient, up);
  const float* behind = dactive.data<float>();
  const Tensor dgate =
      elementwise(context, "ms::silu_backward", gate, [=](int64_t i) { return behind[i] * silu_slope(in[i]); });
  const int64_t f = gate.dim(-1);
  detail::with_type(x.dtype(), [&]<class T>() {
    pass(context, "ms::concatenate", detail::num_rows(gate), detail::row_grain(f), x.size_bytes(),
         [&](int64_t begin, int64_t end) {
           for (int64_t i = begin * f; i < end * f; ++i) {
             T* row = x.data<T>() + i / f * 2 * f;
             row[i % f] = static_cast<T>(dgate.data<float>()[i]);
             row[f + i % f] = static_cast<T>(dup.data<float>()[i]);
           }
         });
  });
  return x;
}

Tensor rope(Context& context, const TensorView& x, const RopeTable& table, std::span<const int32_t> positions,
            bool inverse, int64_t first_element) {
  MS_CHECK(x.shape().size() == 4 && first_element >= 0 && first_element + table.dim() <= x.dim(3), "rope: x is ",
           core::cat(x.shape()));
  MS_CHECK(positions.empty() || static_cast<int64_t>(positions.size()) == x.dim(0) * x.dim(1),
           "rope: ", positions.size(), " positions for ", core::cat(x.shape()));
  const Tensor wide = cast(context, x, DType::kFp32);
  const int64_t d = x.dim(3), dim = table.dim(), half = dim / 2, batch = x.dim(1), token = x.dim(2) * d;
  std::vector<int64_t> rows;  // of the table, of each token
  for (int64_t i = 0; i < x.dim(0) * batch; ++i)
    rows.push_back(table.row_of(positions.empty() ? i / batch : positions[static_cast<size_t>(i)]));
  const bool halves = table.pairs() == RopePairs::kHalves;
  const float* in = wide.data<float>();
  // Element e of a head belongs to a pair, whose other element is `other`; the first one's partner counts negatively.
  const Tensor turned = elementwise(context, "ms::rotate_pairs", wide, [=](int64_t i) {
    const int64_t e = i % d - first_element;
    if (e < 0 || e >= dim) return 0.0F;
    const bool is_first = halves ? e < half : e % 2 == 0;
    const int64_t distance = halves ? half : 1;
    return is_first ? -in[i + distance] : in[i - distance];
  });
  const float *other = turned.data<float>(), *cos = table.cos(), *sin = table.sin();
  const float direction = inverse ? -1.0F : 1.0F;
  return cast(context,
              elementwise(context, "ms::rotate", wide,
                          [=, &rows](int64_t i) {
                            const int64_t e = i % d - first_element;
                            if (e < 0 || e >= dim) return in[i];
                            const int64_t angle =
                                rows[static_cast<size_t>(i / token)] * half + (halves ? e % half : e / 2);
                            return in[i] * cos[angle] + direction * other[i] * sin[angle];
                          }),
              x.dtype());
}

namespace {

// Positions of one head, [s, d] with these many elements between rows.
struct HeadRows {
  std::byte* data;
  kernels::GemmType type;
  int64_t stride;
};

HeadRows head_rows(const TensorView& x, int64_t head) {
  const int64_t d = x.dim(3);
  return {x.bytes() + head * d * core::size_of(x.dtype()), detail::gemm_type(x), x.dim(1) * x.dim(2) * d};
}
HeadRows matrix(float* values, int64_t columns) {
  return {reinterpret_cast<std::byte*>(values), kernels::GemmType::kFp32, columns};
}

struct Transposed {
  bool a = false, b = false;
};
void product(Context& context, const HeadRows& a, const HeadRows& b, const HeadRows& c, int64_t m, int64_t n, int64_t k,
             Transposed transposed, bool accumulate = false) {
  kernels::GemmProblem problem;
  problem.transpose_a = transposed.a, problem.transpose_b = transposed.b;
  problem.m = m, problem.n = n, problem.k = k;
  problem.a = a.data, problem.a_type = a.type, problem.lda = a.stride;
  problem.b = b.data, problem.b_type = b.type, problem.ldb = b.stride;
  problem.c = c.data, problem.c_type = c.type, problem.ldc = c.stride;
  problem.accumulate = accumulate;
  problem.deterministic = context.deterministic;
  kernels::gemm(problem);
}

// Calls visit(query, first) for the positions of a sample, and the first ones of their documents.
template <class Visit>
void for_each_query(const AttentionParams& params, const detail::AttentionSizes& sizes, int64_t sample,
                    const Visit& visit) {
  detail::for_each_document(params, sizes, sample, [&](int64_t first, int64_t end) {
    for (int64_t query = first; query < end; ++query) visit(query, first);
  });
}

// Of a query that sees no key, of whose scores all are -inf, 0.
float finite_or_zero(float score) { return score == -INFINITY ? 0.0F : score; }

// score_of(product, query, key) where the lists have a key, -inf elsewhere.
template <class Score>
void mask_scores(const kernels::VisibleRuns& runs, int64_t seq, const Score& score_of, float* scores) {
  int64_t begin_run = 0;
  for (int64_t i = 0; i < runs.num_spans; begin_run = runs.spans[i++].runs_end) {
    const kernels::QuerySpan& span = runs.spans[i];
    for (int64_t query = span.first; query < int64_t{span.first} + span.count; ++query) {
      float* const row = scores + query * seq;
      int64_t key = 0;
      for (int64_t run = begin_run; run < span.runs_end; ++run) {
        const int64_t first = runs.runs[run].first, behind = first + runs.runs[run].count;
        const int64_t end = runs.is_causal ? std::clamp(query + 1, first, behind) : behind;
        std::fill(row + key, row + first, -INFINITY);
        for (key = first; key < end; ++key) row[key] = score_of(row[key], query, key);
      }
      std::fill(row + key, row + seq, -INFINITY);
    }
  }
}

// Scores of all positions of a head with each other, q k^T, become capped scores, or those of ALiBi; -inf where a query
// sees no key.
void mask_scores(const AttentionParams& params, const kernels::AttentionParams& head,
                 const detail::AttentionSizes& sizes, int64_t sample, float* scores) {
  const auto scale = static_cast<float>(params.scale), cap = static_cast<float>(params.softcap);
  const auto score_of = [&](float product, int64_t query, int64_t key) {
    const float score = scale * product, biased = score - head.bias.slope * static_cast<float>(query - key);
    return cap > 0 ? cap * std::tanh(score / cap) : biased;
  };
  if (params.runs.any()) return mask_scores(params.runs, sizes.seq, score_of, scores);
  for_each_query(params, sizes, sample, [&](int64_t query, int64_t first) {
    if (params.window > 0) first = std::max(first, query + 1 - params.window);
    float* row = scores + query * sizes.seq;
    for (int64_t key = 0; key < sizes.seq; ++key) {
      const bool visible = key >= first && (key <= query || key < head.visible.prefix);
      row[key] = visible ? score_of(row[key], query, key) : -INFINITY;
    }
  });
}

// Multiplies row `query` of probabilities, or of their gradients, by the dropout factors. first: of its document, from
// which columns count. factors: [keys], working memory.
void drop_row(const kernels::AttentionParams& head, int64_t seq, int64_t query, int64_t first, float* factors,
              float* row) {
  if (head.dropout.probability == 0) return;
  const int64_t end = head.runs.any() ? seq : std::max(query + 1, head.visible.prefix);
  kernels::dropout_factors(head.dropout, head.sample, query, 0, end - first, factors);
  for (int64_t key = first; key < end; ++key) row[key] *= factors[key - first];
}

}  // namespace

AttentionResult causal_attention(Context& context, const TensorView& q, const TensorView& k, const TensorView& v,
                                 const AttentionParams& params) {
  const detail::OpScope scope(context, "ms::unfused_attention", q, k, v);
  const detail::AttentionSizes sizes = detail::check_qkv(q, k, v);
  detail::check_documents(params, sizes);
  const int64_t seq = sizes.seq, d = sizes.d, heads = sizes.batch * sizes.heads;
  AttentionResult result{Tensor(context.arena, q.dtype(), sizes.out_shape(), core::MemoryTag::kAct),
                         Tensor(context.arena, DType::kFp32, {sizes.batch, sizes.heads, seq}, core::MemoryTag::kAct)};
  const int64_t flops = detail::product_pair_flops(params, sizes);
  context.flops += flops;
  const auto kernel = scope.kernel(flops, 2 * q.size_bytes() + k.size_bytes() + v.size_bytes());
  detail::Workspaces workspaces(context, heads, seq * seq + seq);
  context.pool.parallel_for(heads, 1, [&](int64_t begin, int64_t end) {
    float* const scores = workspaces.take();
    float* const factors = scores + seq * seq;
    for (int64_t head = begin; head < end; ++head) {
      const int64_t group = head / sizes.per_group(), sample = head / sizes.heads;
      const kernels::AttentionParams of_head = detail::head_params(params, sample, head % sizes.heads);
      product(context, head_rows(q, head), head_rows(k, group), matrix(scores, seq), seq, seq, d, {.b = true});
      mask_scores(params, of_head, sizes, sample, scores);
      for_each_query(params, sizes, sample, [&](int64_t query, int64_t first) {
        float* row = scores + query * seq;
        const float most = *std::max_element(row, row + seq), shift = finite_or_zero(most);
        double sum = 0;
        for (int64_t key = 0; key < seq; ++key) sum += row[key] = std::exp(row[key] - shift);
        result.lse.data<float>()[head * seq + query] = most + static_cast<float>(std::log(sum));
        for (int64_t key = 0; key < seq; ++key) row[key] /= sum == 0 ? 1.0F : static_cast<float>(sum);
        drop_row(of_head, seq, query, first, factors, row);
      });
      product(context, matrix(scores, seq), head_rows(v, group), head_rows(result.out, head), seq, sizes.d_v, seq, {});
    }
  });
  return result;
}

QkvGradients causal_attention_backward(Context& context, const TensorView& dout, const TensorView& q,
                                       const TensorView& k, const TensorView& v, const TensorView& out,
                                       const TensorView& lse, const AttentionParams& params) {
  const detail::OpScope scope(context, "ms::unfused_attention_backward", dout, q, k, v, out);
  const detail::AttentionSizes sizes = detail::check_qkv(q, k, v);
  detail::check_documents(params, sizes);
  const TensorView gradient = dout.reshaped(sizes.out_shape()), result = out.reshaped(sizes.out_shape());
  const int64_t seq = sizes.seq, d = sizes.d, d_v = sizes.d_v, groups = sizes.batch * sizes.groups;
  const auto make = [&](const TensorView& like) {
    return Tensor(context.arena, like.dtype(), like.shape(), core::MemoryTag::kAct);
  };
  QkvGradients grads{make(q), make(k), make(v)};
  const int64_t flops = 2 * detail::product_pair_flops(params, sizes);
  context.flops += flops;
  const auto kernel = scope.kernel(flops, 4 * q.size_bytes() + 4 * k.size_bytes());
  const auto scale = static_cast<float>(params.scale), cap = static_cast<float>(params.softcap);
  detail::Workspaces workspaces(context, groups, 2 * seq * seq + seq + seq * (d + d_v));
  context.pool.parallel_for(groups, 1, [&](int64_t begin, int64_t end) {
    float* const p = workspaces.take();
    float *const other = p + seq * seq, *const factors = other + seq * seq;
    float *const dk = factors + seq, *const dv = dk + seq * d;
    for (int64_t group = begin; group < end; ++group) {
      std::fill(dk, dk + seq * (d + d_v), 0.0F);
      for (int64_t head = group * sizes.per_group(); head < (group + 1) * sizes.per_group(); ++head) {
        const int64_t sample = head / sizes.heads;
        const kernels::AttentionParams of_head = detail::head_params(params, sample, head % sizes.heads);
        const float* row_lse = lse.data<float>() + head * seq;
        product(context, head_rows(q, head), head_rows(k, group), matrix(p, seq), seq, seq, d, {.b = true});
        mask_scores(params, of_head, sizes, sample, p);
        for_each_query(params, sizes, sample, [&](int64_t query, int64_t first) {
          const float shift = finite_or_zero(row_lse[query]);
          for (int64_t key = 0; key < seq; ++key)
            other[query * seq + key] = p[query * seq + key] = std::exp(p[query * seq + key] - shift);
          drop_row(of_head, seq, query, first, factors, other + query * seq);
        });
        product(context, matrix(other, seq), head_rows(gradient, head), matrix(dv, d_v), seq, d_v, seq, {.a = true},
                true);
        product(context, head_rows(gradient, head), head_rows(v, group), matrix(other, seq), seq, seq, d_v,
                {.b = true});
        detail::with_type(q.dtype(), [&]<class T>() {
          for_each_query(params, sizes, sample, [&](int64_t query, int64_t first) {
            float *row = other + query * seq, *probabilities = p + query * seq;
            drop_row(of_head, seq, query, first, factors, row);
            const int64_t at = query * sizes.batch * sizes.heads * d_v + head * d_v;
            float mean = 0;  // of the row's gradient under its probabilities: dO O
            for (int64_t e = 0; e < d_v; ++e) {
              mean += static_cast<float>(gradient.data<T>()[at + e]) * static_cast<float>(result.data<T>()[at + e]);
            }
            for (int64_t key = 0; key < seq; ++key) {
              const float capped = cap > 0 ? (std::log(probabilities[key]) + row_lse[query]) / cap : 0.0F;
              const float slope = probabilities[key] > 0 ? 1.0F - capped * capped : 0.0F;
              row[key] = scale * slope * probabilities[key] * (row[key] - mean);
            }
          });
        });
        product(context, matrix(other, seq), head_rows(k, group), head_rows(grads.dq, head), seq, d, seq, {});
        product(context, matrix(other, seq), head_rows(q, head), matrix(dk, d), seq, d, seq, {.a = true}, true);
      }
      detail::with_type(q.dtype(), [&]<class T>() {
        for (int64_t row = 0; row < seq; ++row) {
          T* const key = grads.dk.data<T>() + (row * sizes.batch * sizes.groups + group) * d;
          T* const value = grads.dv.data<T>() + (row * sizes.batch * sizes.groups + group) * d_v;
          for (int64_t e = 0; e < d; ++e) key[e] = static_cast<T>(dk[row * d + e]);
          for (int64_t e = 0; e < d_v; ++e) value[e] = static_cast<T>(dv[row * d_v + e]);
        }
      });
    }
  });
  return grads;
}

}  // namespace ms::ops::unfused
