// Core attention of ranks that share a sequence and gather its keys and values, while queries stay where they are
// (Llama 3, section 3.3.2; MindSpeed's kvallgather_cp_algo, Megatron's --cp-comm-type all_gather). They are gathered
// once more in backward, and not kept.
#pragma once

#include "core/comm/communicator.h"
#include "train/model/core_attention.h"
#include "train/ops/context.h"

namespace ms::train {

class KvGatherAttention : public CoreAttention {
 public:
  // ranks: those that share a sequence as layout::is_zigzag says. params: without a sequence's.
  KvGatherAttention(ops::Context& ops, core::Communicator& ranks, const ops::AttentionParams& params)
      : ops_(ops), ranks_(ranks), params_(params) {}

  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;

 private:
  // Of all positions, in their order.
  struct Keys {
    core::Tensor k, v;
  };
  Keys gather(const core::TensorView& k, const core::TensorView& v);
  // Gradients of all positions, added over the ranks: each has those of its own.
  Keys scatter(Keys whole);

  ops::Context& ops_;
  core::Communicator& ranks_;
  ops::AttentionParams params_;
};

}  // namespace ms::train
