// Core attention with a sink in the softmax of each head (train/ops/attention_sink.h; Megatron's --softmax-type).
#pragma once

#include <memory>
#include <utility>

#include "train/model/core_attention.h"
#include "train/model/parameters.h"

namespace ms::train {

class SinkAttention : public CoreAttention {
 public:
  // keys: attends the keys that have values. sinks: of all heads of this tensor-parallel rank, or null for scores of 0.
  // first_head: of the heads that `keys` attends, among these.
  SinkAttention(ops::Context& ops, Parameter* sinks, int64_t first_head, std::unique_ptr<CoreAttention> keys)
      : ops_(ops), sinks_(sinks), first_head_(first_head), keys_(std::move(keys)) {}

  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;
  void refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override {
    keys_->refill(std::move(qkv), saved, sequence);
  }

 private:
  core::TensorView own(const core::TensorView& of_heads, const core::TensorView& out) const {
    return of_heads.rows(first_head_, first_head_ + out.dim(2));
  }

  ops::Context& ops_;
  Parameter* sinks_;  // not owned
  int64_t first_head_;
  std::unique_ptr<CoreAttention> keys_;
};

}  // namespace ms::train
