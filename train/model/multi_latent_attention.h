// Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1; megatron/core/transformer/
// multi_latent_attention.py): queries, keys and values are up projections of low-rank vectors, which are normalized
// (with --qk-layernorm); a part of each head is rotated, and for keys that part is one for all heads.
//
// The down projections are whole on each tensor-parallel rank, the up projections are cut by heads. With sequence
// parallelism the vectors are gathered, not the hidden state: rank + qk_pos_emb_head_dim elements of a position. The
// gradients of the vectors, and of the shared part of the keys, are summed over TP, so that nothing is left to sum of
// the gradient of the norm's result.
#pragma once

#include <optional>
#include <string>

#include "train/model/attention.h"
#include "train/model/replicated_linear.h"

namespace ms::train {

class MultiLatentAttention : public Attention {
 public:
  // As Attention's.
  MultiLatentAttention(RankState& state, ParameterStore& parameters, const ops::RopeTable* rope, int64_t layer);

 protected:
  ops::QkvTensors project(AttentionActivations& saved, const layout::LayerSlots& slots,
                          const SequenceContext& sequence) override;
  void recompute(const core::TensorView& x, AttentionActivations& saved, const SequenceContext& sequence) override;
  PartialSum project_backward(ops::QkvGradients gradients, const core::TensorView& x, AttentionActivations& saved,
                              const SequenceContext& sequence, WeightGradients& weights) override;

 private:
  // Queries, keys and values of this rank's heads. shared_key: rotated.
  ops::QkvTensors up_project(const AttentionActivations& saved, const core::TensorView& shared_key,
                             const SequenceContext& sequence);
  // The part of the keys that all heads share, [seq, batch, qk_pos_emb_head_dim], is rotated to its positions, or back.
  void rotate_shared(core::Tensor& shared_key, const SequenceContext& sequence, bool inverse);
  // -> the gradients of saved.normed, by way of keys and values, and of queries.
  core::Tensor keys_backward(ops::QkvGradients& gradients, AttentionActivations& saved, const SequenceContext& sequence,
                             WeightGradients& weights);
  core::Tensor queries_backward(core::Tensor dq, AttentionActivations& saved, WeightGradients& weights);

  std::optional<ReplicatedLinear> q_down_;  // with --q-lora-rank; else q_up_, linear_q_proj, reads the norm's result
  std::optional<Norm> q_norm_;
  ColumnParallelLinear q_up_;
  ReplicatedLinear kv_down_;
  std::optional<Norm> kv_norm_;
  ColumnParallelLinear kv_up_;
  int64_t heads_;  // of this rank
  int64_t own_, shared_, d_v_;
  bool keeps_shared_key_;
};

}  // namespace ms::train
