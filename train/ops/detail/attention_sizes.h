// Sizes and parameters that the attention operators share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "train/ops/attention.h"
#include "train/ops/detail/typed.h"

namespace ms::ops::detail {

// seq s, batch b, heads nh, groups ng, head dimension d (train/ops/attention.h).
struct AttentionSizes {
  int64_t seq, batch, heads, groups, d;
  int64_t per_group() const { return heads / groups; }
  // FLOPs of a product of the visible scores with d: of seq x seq the causal half, or what a window leaves of it.
  int64_t product_flops(int64_t window) const {
    const int64_t keys = window > 0 ? std::min(window, seq) : seq;
    return keys * (2 * seq - keys) * d * batch * heads;
  }
};

inline AttentionSizes check_qkv(const core::TensorView& q, const core::TensorView& k, const core::TensorView& v) {
  MS_CHECK(q.shape().size() == 4 && k.shape().size() == 4, "attention: q is ", core::cat(q.shape()), ", k ",
           core::cat(k.shape()), ", expected [seq, batch, heads, d]");
  const AttentionSizes sizes{q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3)};
  MS_CHECK(sizes.groups > 0 && sizes.heads % sizes.groups == 0, "attention: ", sizes.heads, " heads in ", sizes.groups,
           " groups");
  check_shape(k, {sizes.seq, sizes.batch, sizes.groups, sizes.d}, "attention: k");
  check_shape(v, k.shape(), "attention: v");
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
  result.dropout = params.dropout;
  if (params.dropout.probability > 0) {
    MS_CHECK(batch < static_cast<int64_t>(params.samples.size()), "attention: no sample numbers for dropout");
    result.sample = params.samples[static_cast<size_t>(batch)];
    result.dropout.key += kernels::kHeadDropoutKeyStep * static_cast<uint64_t>(params.first_head + head);
  }
  return result;
}

}  // namespace ms::ops::detail
