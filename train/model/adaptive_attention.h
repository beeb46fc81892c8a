// Core attention of ranks that share a sequence as a plan says (core/layout/adaptive_plan.h; MindSpeed's
// adaptive_cp_algo): the plan gives each rank positions and the blocks of keys and values of others that its queries
// see, round by round. While a block is attended, that of the next round is on its way; blocks that no query sees do
// not travel. The result is fp32 until the last block has been added.
#pragma once

#include <vector>

#include "core/comm/communicator.h"
#include "core/layout/adaptive_plan.h"
#include "train/model/core_attention.h"
#include "train/ops/context.h"
#include "train/ops/range_attention.h"

namespace ms::train {

class AdaptiveAttention : public CoreAttention {
 public:
  // ranks: those of the plan. params: without window and dropout, and without a sequence's.
  AdaptiveAttention(ops::Context& ops, core::Communicator& ranks, const ops::AttentionParams& params)
      : ops_(ops), ranks_(ranks), params_(params) {}

  // sequence.share: of a plan for as many ranks.
  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  // The same rounds again. The gradients of a block go back to where it came from while the next one is attended.
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;

 private:
  struct Keys {
    core::Tensor k, v;
  };
  // Messages of a round, and what they carry.
  struct Messages;
  // What a block of keys adds to the result, and to the gradients.
  class Sums;
  class Gradients;

  // Lists of ranges that are attended one after the other (scattered_ranges), or one of all rows with the runs of a
  // grid.
  struct Ranges {
    std::vector<std::vector<ops::AttentionRange>> lists;
    layout::RunLists runs = {};
  };
  Ranges ranges_of(int keys_of, const SequenceContext& sequence, int64_t batch) const;
  Keys keys_like(const core::TensorView& k, const core::TensorView& v);
  // Begins to exchange keys and values of a round; empty behind the last one.
  Messages post(const layout::AdaptivePlan& plan, size_t round, const CoreAttentionActivations& saved);
  // Begins to receive gradients of own keys from those that attend them in the round.
  Messages receive_gradients(const layout::AdaptivePlan& plan, size_t round, const CoreAttentionActivations& saved);

  ops::Context& ops_;
  core::Communicator& ranks_;
  ops::AttentionParams params_;
};

}  // namespace ms::train
