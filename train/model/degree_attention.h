// Core attention where each micro-batch has as many of the ranks that share sequences as its samples need
// (train/data/degree_deal.h): one of its own for each number of ranks, all with the layer's masks and parameters.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "train/model/core_attention.h"

namespace ms::train {

class DegreeAttention : public CoreAttention {
 public:
  // of_degree: those of 1, 2, 4, .. ranks.
  explicit DegreeAttention(std::vector<std::unique_ptr<CoreAttention>> of_degree) : of_degree_(std::move(of_degree)) {}

  void forward(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override;
  ops::QkvGradients backward(core::Tensor dout, CoreAttentionActivations& saved,
                             const SequenceContext& sequence) override;
  void refill(ops::QkvTensors qkv, CoreAttentionActivations& saved, const SequenceContext& sequence) override {
    of(sequence).refill(std::move(qkv), saved, sequence);
  }

 private:
  CoreAttention& of(const SequenceContext& sequence) const;

  std::vector<std::unique_ptr<CoreAttention>> of_degree_;
};

}  // namespace ms::train
