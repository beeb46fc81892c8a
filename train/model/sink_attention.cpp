#include "train/model/sink_attention.h"

#include <utility>

#include "train/ops/attention_sink.h"

namespace ms::train {

void SinkAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  keys_->forward(std::move(qkv), saved, sequence);
  if (sinks_ == nullptr) return ops::add_attention_sink(ops_, saved.out, saved.lse, nullptr);
  const core::TensorView sinks = own(sinks_->weight, saved.out);
  ops::add_attention_sink(ops_, saved.out, saved.lse, &sinks);
}

ops::QkvGradients SinkAttention::backward(core::Tensor dout, CoreAttentionActivations& saved,
                                          const SequenceContext& sequence) {
  if (sinks_ != nullptr && sinks_->trains()) {
    ops::attention_sink_gradient(ops_, dout, saved.out, saved.lse, own(sinks_->weight, saved.out),
                                 own(sinks_->main_grad, saved.out));
  }
  return keys_->backward(std::move(dout), saved, sequence);
}

}  // namespace ms::train
