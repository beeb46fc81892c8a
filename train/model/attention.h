// Attention of one layer: norm, the projections that give queries, keys and values, core attention (core_attention.h),
// its output gate (optional), row-parallel projection, norm after it (optional)
// (megatron/core/transformer/attention.py). With TP each rank has
// heads / tp query heads and groups / tp key/value heads, or one that it shares (query_groups.h). An interface, because
// queries, keys and values come from one product (SelfAttention) or from low-rank vectors (multi_latent_attention.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "train/memory/activations.h"
#include "train/model/core_attention.h"
#include "train/model/linear.h"
#include "train/model/norm.h"
#include "train/model/parameters.h"
#include "train/model/sequence_context.h"
#include "train/ops/rope.h"
#include "train/parallel/query_groups.h"
#include "train/rank_state.h"

namespace ms::train {

class Attention {
 public:
  virtual ~Attention() = default;

  // x [seq', batch, hidden] -> the block's contribution to the residual stream, same shape, plus `residual` unless that
  // is null. Fills `saved`, but for what `slots` drop. sequence: the same in backward.
  core::Tensor forward(const core::TensorView& x, AttentionActivations& saved, const layout::LayerSlots& slots,
                       const core::TensorView* residual, const SequenceContext& sequence) {
    return finish_forward(start_forward(x, saved, slots, residual, sequence), saved, residual);
  }
  // The same in two halves, before and behind the sum over TP of what linear_proj gives.
  PartialSum start_forward(const core::TensorView& x, AttentionActivations& saved, const layout::LayerSlots& slots,
                           const core::TensorView* residual, const SequenceContext& sequence);
  core::Tensor finish_forward(PartialSum sum, AttentionActivations& saved, const core::TensorView* residual);
  // dy: gradient of the contribution, left as it is; dresidual: of the residual stream behind it, added to the returned
  // dx. What the forward has dropped is computed again; what has been read of `saved` is given back as it goes.
  // Gradients of the linear layers' weights go to `weights`.
  core::Tensor backward(core::Tensor& dy, const core::TensorView& x, AttentionActivations& saved,
                        const core::TensorView& dresidual, const SequenceContext& sequence, WeightGradients& weights) {
    return finish_backward(start_backward(dy, x, saved, sequence, weights), x, saved, dresidual);
  }
  // The same in two halves, before and behind the sum over TP of the gradient of what the norm gives.
  PartialSum start_backward(core::Tensor& dy, const core::TensorView& x, AttentionActivations& saved,
                            const SequenceContext& sequence, WeightGradients& weights);
  core::Tensor finish_backward(PartialSum sum, const core::TensorView& x, AttentionActivations& saved,
                               const core::TensorView& dresidual);

 protected:
  // layer: global index. rope: null where the model has no rotary embedding. norm: names of the norm's parameters
  // within the layer, NORMweight and NORMbias.
  Attention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer, const char* norm);

  // Queries, keys and values from saved.normed, rotated and normalized. Fills `saved`, but for saved.core, and drops of
  // it what `slots` say. The gate is of this rank's positions and heads: ranks that share a sequence exchange none.
  virtual ops::QkvTensors project(AttentionActivations& saved, const layout::LayerSlots& slots,
                                  const SequenceContext& sequence) = 0;
  // Makes q, k and v of saved.core once more where they were dropped.
  virtual void recompute(const core::TensorView& x, AttentionActivations& saved, const SequenceContext& sequence) = 0;
  // -> the gradient of what the norm gives, of which `saved` has the rest. saved.gate is the gate's gradient by now.
  virtual PartialSum project_backward(ops::QkvGradients gradients, const core::TensorView& x,
                                      AttentionActivations& saved, const SequenceContext& sequence,
                                      WeightGradients& weights) = 0;
  // The rotated elements of each head of x, those from first_element on, are rotated to their positions, or back.
  void rotate(core::Tensor& x, const SequenceContext& sequence, bool inverse, int64_t first_element = 0);

  RankState& state_;
  std::string name_;  // decoder.layers.N.self_attention.
  const ops::RopeTable* rope_;
  Norm norm_;
  std::unique_ptr<CoreAttention> core_;

 private:
  // What the projection reads, [seq, batch, heads / tp * d_v]: what core attention gave, times the sigmoid of the gate.
  core::Tensor context_of(AttentionActivations& saved);

  RowParallelLinear projection_;
  std::optional<Norm> post_norm_;
};

// Queries, keys, values and the gate from one column-parallel product, norms per head (optional), grouped queries.
class SelfAttention : public Attention {
 public:
  // As Attention's.
  SelfAttention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer);

 protected:
  ops::QkvTensors project(AttentionActivations& saved, const layout::LayerSlots& slots,
                          const SequenceContext& sequence) override;
  void recompute(const core::TensorView&, AttentionActivations&, const SequenceContext&) override {}  // never dropped
  PartialSum project_backward(ops::QkvGradients gradients, const core::TensorView& x, AttentionActivations& saved,
                              const SequenceContext& sequence, WeightGradients& weights) override;

 private:
  ColumnParallelLinear qkv_;
  std::optional<SharedQueryGroup> shared_group_;
  std::optional<Norm> q_norm_, k_norm_;
  int64_t heads_, groups_, head_dim_;  // of this rank
  bool has_gate_;
};

// The implementation that the configuration asks for.
std::unique_ptr<Attention> make_attention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope,
                                          int64_t layer);

}  // namespace ms::train
