// Sizes and parameters that the attention operators share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "kernels/attention.h"
#include "train/ops/attention.h"
#include "train/ops/detail/typed.h"

namespace ms::ops::detail {

// seq s, batch b, heads nh, groups ng, head dimensions d of q and k, d_v of v and out (train/ops/attention.h).
struct AttentionSizes {
  int64_t seq, batch, heads, groups, d, d_v = d;
  int64_t per_group() const { return heads / groups; }
  core::Dims out_shape() const { return {seq, batch, heads, d_v}; }
};

// Of `queries` rows that attend `keys` rows of a sample.
inline kernels::AttentionShape attention_shape(const AttentionSizes& sizes, int64_t queries, int64_t keys) {
  return {.queries = queries,
          .keys = keys,
          .d = sizes.d,
          .q_stride = sizes.batch * sizes.heads * sizes.d,
          .kv_stride = sizes.batch * sizes.groups * sizes.d,
          .head_stride = sizes.d,
          .lse_stride = sizes.seq,
          .value_d = sizes.d_v,
          .out_stride = sizes.batch * sizes.heads * sizes.d_v,
          .value_stride = sizes.batch * sizes.groups * sizes.d_v,
          .out_head_stride = sizes.d_v};
}

// Calls visit(first, end) with the positions of each document of a sample.
template <class Visit>
void for_each_document(const AttentionParams& params, const AttentionSizes& sizes, int64_t sample, const Visit& visit) {
  const std::span<const int64_t> ends = params.document_ends;
  if (ends.empty()) return visit(int64_t{0}, sizes.seq);
  const int64_t begin = sample * sizes.seq;
  int64_t first = begin;
  for (auto end = std::ranges::upper_bound(ends, begin); first < begin + sizes.seq; first = *end++)
    visit(first - begin, *end - begin);
}

// Twice the visible scores of a head, of a query's own key once if they are causal: as product_pair_flops counts.
// Checks that the lists are of so many queries and keys.
inline int64_t count_scores(const kernels::VisibleRuns& runs, int64_t queries, int64_t keys) {
  int64_t scores = 0, row = 0, run = 0;
  for (int64_t i = 0; i < runs.num_spans; ++i) {
    const kernels::QuerySpan& span = runs.spans[i];
    MS_CHECK(span.first == row && span.count > 0 && span.runs_end >= run, "attention: queries ", span.first, " on, ",
             span.count, ", behind ", row);
    row += span.count;
    for (int64_t key = 0; run < span.runs_end; ++run) {
      const kernels::KeyRun& seen = runs.runs[run];
      MS_CHECK(seen.first >= key && seen.count > 0, "attention: keys ", seen.first, " on, ", seen.count, ", behind ",
               key);
      key = int64_t{seen.first} + seen.count;
      MS_CHECK(key <= keys, "attention: keys up to ", key, " of ", keys);
      const int64_t last = int64_t{seen.position} + seen.count - 1;
      if (!runs.is_causal || last < span.position) {
        scores += 2 * int64_t{span.count} * seen.count;
        continue;
      }
      for (int64_t position = span.position; position < int64_t{span.position} + span.count; ++position) {
        const int64_t visible = std::clamp<int64_t>(position - seen.position + 1, 0, seen.count);
        scores += 2 * visible - (position >= seen.position && position <= last ? 1 : 0);
      }
    }
  }
  MS_CHECK(row == queries, "attention: lists of ", row, " of ", queries, " queries");
  return scores;
}

inline void check_documents(const AttentionParams& params, const AttentionSizes& sizes) {
  const std::span<const int64_t> ends = params.document_ends;
  MS_CHECK(!params.runs.any() || (ends.empty() && params.window == 0 && params.prefix == 0),
           "attention: lists of keys with documents, a window or a prefix");
  MS_CHECK(params.prefix == 0 || (ends.empty() && params.window == 0 && params.alibi_slopes.empty()),
           "attention: a prefix of ", params.prefix, " with documents, a window or slopes");
  if (ends.empty()) return;
  const auto fail = [&](const auto&... parts) {
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat("attention: documents of packed samples: ", parts...));
  };
  int64_t before = 0;
  for (const int64_t end : ends) {
    if (end <= before) fail("one ends at ", end, ", behind one that ends at ", before);
    if (before / sizes.seq != (end - 1) / sizes.seq)
      fail("one of ", before, " to ", end, " reaches over a sample's end");
    before = end;
  }
  if (before != sizes.seq * sizes.batch)
    fail("the last ends at ", before, " of ", sizes.seq * sizes.batch, " positions");
}

// FLOPs of a product of all visible scores with d and of one with d_v: of a document of s tokens, the causal half of s
// x s, or what a window leaves of it; of a prefix of p tokens all of p x p.
inline int64_t product_pair_flops(const AttentionParams& params, const AttentionSizes& sizes) {
  if (params.runs.any())
    return sizes.batch * count_scores(params.runs, sizes.seq, sizes.seq) * (sizes.d + sizes.d_v) * sizes.heads;
  int64_t scores = 0;  // twice the visible ones of a head
  for (int64_t sample = 0; sample < sizes.batch; ++sample) {
    for_each_document(params, sizes, sample, [&](int64_t first, int64_t end) {
      const int64_t tokens = end - first, keys = params.window > 0 ? std::min(params.window, tokens) : tokens;
      const int64_t prefix = std::min(params.prefix, tokens);
      scores += keys * (2 * tokens - keys) + prefix * prefix;
    });
  }
  return scores * (sizes.d + sizes.d_v) * sizes.heads;
}

inline AttentionSizes check_qkv(const core::TensorView& q, const core::TensorView& k, const core::TensorView& v) {
  MS_CHECK(q.shape().size() == 4 && k.shape().size() == 4 && v.shape().size() == 4, "attention: q is ",
           core::cat(q.shape()), ", k ", core::cat(k.shape()), ", v ", core::cat(v.shape()),
           ", expected [seq, batch, heads, d]");
  const AttentionSizes sizes{q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), v.dim(3)};
  MS_CHECK(sizes.groups > 0 && sizes.heads % sizes.groups == 0, "attention: ", sizes.heads, " heads in ", sizes.groups,
           " groups");
  check_shape(k, {sizes.seq, sizes.batch, sizes.groups, sizes.d}, "attention: k");
  check_shape(v, {sizes.seq, sizes.batch, sizes.groups, sizes.d_v}, "attention: v");
  check_dtype(k, q.dtype(), "attention: k");
  check_dtype(v, q.dtype(), "attention: v");
  return sizes;
}

// The parameters of a kernel for one head of one sample. batch: index in the micro-batch, head: index on this rank.
inline kernels::AttentionParams head_params(const AttentionParams& params, int64_t batch, int64_t head) {
  kernels::AttentionParams result;
  result.scale = static_cast<float>(params.scale);
  result.softcap = static_cast<float>(params.softcap);
  if (params.window > 0) result.visible.first = 1 - params.window;
  result.visible.prefix = params.prefix;
  result.runs = params.runs;
  if (!params.alibi_slopes.empty()) {
    const auto of_model = static_cast<size_t>(params.first_head + head);
    MS_CHECK(of_model < params.alibi_slopes.size() && params.softcap == 0, "attention: no slope for head ", of_model);
    result.bias.slope = params.alibi_slopes[of_model];
  }
  result.dropout = params.dropout;
  if (params.dropout.probability > 0) {
    MS_CHECK(batch < static_cast<int64_t>(params.samples.size()), "attention: no sample numbers for dropout");
    result.sample = params.samples[static_cast<size_t>(batch)];
    result.dropout.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(params.first_head + head);
  }
  return result;
}

}  // namespace ms::ops::detail
