#include "train/model/degree_attention.h"

#include <bit>

#include "core/error.h"

namespace ms::train {

CoreAttention& DegreeAttention::of(const SequenceContext& sequence) const {
  const auto number = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(sequence.share.ranks())));
  MS_CHECK(number < of_degree_.size(), "a share of more than ", of_degree_.size(), " degrees");
  return *of_degree_[number];
}

void DegreeAttention::forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) {
  of(sequence).forward(std::move(qkv), saved, sequence);
}

ops::QkvGradients DegreeAttention::backward(core::Tensor dout, CoreAttentionActivations& saved,
                                            const SequenceContext& sequence) {
  return of(sequence).backward(std::move(dout), saved, sequence);
}

}  // namespace ms::train
