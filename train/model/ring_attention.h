// Core attention of ranks that share a sequence and pass its keys and values around (ring attention, Liu et al. 2023;
// MindSpeed's megatron_cp_algo, Megatron's --cp-comm-type p2p). Each rank has a part from the front of the sequence and
// one from the back (SequenceShare), so that all compute as many scores in each step: its own causal ones; all queries
// with the front half of the keys of a rank before it; the back half of the queries with all keys of one behind it.
// While a block is attended, the next one is on its way. The result is fp32 until the last block has been added.
#pragma once

#include "core/comm/communicator.h"
#include "train/model/core_attention.h"
#include "train/ops/context.h"

namespace ms::train {

class RingAttention : public CoreAttention {
 public:
  // ranks: those that share a sequence. params: without window and dropout, and without a sequence's.
  RingAttention(ops::Context& ops, core::Communicator& ranks, const ops::AttentionParams& params)
      : ops_(ops), ranks_(ranks), params_(params) {}

  // saved.k and saved.v become the block that came last, with which the backward begins.
  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  // The ring in reverse: the gradients of keys travel with them, and arrive where they belong.
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;

 private:
  struct Keys {
    core::Tensor k, v;
  };
  // On its way to one neighbour while another comes from the other one.
  struct Hop;

  int after(int steps) const { return (ranks_.rank() + steps + ranks_.size()) % ranks_.size(); }
  Keys keys_like(const Keys& keys);

  ops::Context& ops_;
  core::Communicator& ranks_;
  ops::AttentionParams params_;
};

}  // namespace ms::train
