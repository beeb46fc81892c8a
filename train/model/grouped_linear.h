// One of the two linear layers of a layer's experts, of all of them at once: each multiplies rows of its own
// (megatron/core/transformer/moe/experts.py, GroupedMLP). With expert tensor parallelism linear_fc1 is column-parallel
// and linear_fc2 row-parallel; TokenDispatcher adds up what the ranks give. The experts' weights are parameters of
// their own, at equal distances in the buffers of ParameterStore.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/tensor.h"
#include "train/model/parameters.h"
#include "train/ops/grouped_matmul.h"
#include "train/ops/linear.h"
#include "train/rank_state.h"

namespace ms::train {

class GroupedLinear {
 public:
  // Of the experts that this rank has. experts: prefix of the parameters' names,
  // "decoder.layers.N.mlp.experts.local_experts."; linear: "linear_fc1".
  GroupedLinear(RankState& state, ParameterStore& parameters, const std::string& experts, const std::string& linear);

  // ends: of each expert's rows. x [rows, in] -> [rows, out].
  core::Tensor forward(const core::TensorView& x, std::span<const int64_t> ends);
  // dy [rows, out] -> the gradient of x.
  core::Tensor backward_input(const core::TensorView& dy, std::span<const int64_t> ends);
  const Parameter& weight() const { return first_; }  // of the first expert here
  bool trains() const { return first_.trains(); }     // all weights, or none
  // Adds to the main_grad of the weights, if they train. An expert without rows adds nothing.
  void backward_weight(const core::TensorView& x, const core::TensorView& dy, std::span<const int64_t> ends);

 private:
  ops::GroupedMatrices weights() const { return {first_.weight, count_, stride_}; }

  RankState& state_;
  const Parameter& first_;  // the weight of the first expert here; the others train if it does
  int64_t count_, stride_;  // experts here, and elements from one to the next
  ops::WeightGradientSum sum_;
};

}  // namespace ms::train
