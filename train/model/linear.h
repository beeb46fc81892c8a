// The two linear layers of tensor parallelism, with their communication, bias, and the gradients of input and weight
// apart (megatron/core/tensor_parallel/layers.py). A pair of them, column then row, maps [seq', batch, hidden] to
// itself; seq' = seq / tp with sequence parallelism, else seq, and each rank has 1 / tp of what is between the two.
#pragma once

#include <string>
#include <utility>

#include "core/tensor.h"
#include "train/model/linear_precision.h"
#include "train/model/parameters.h"
#include "train/model/weight_gradients.h"
#include "train/parallel/mappings.h"
#include "train/rank_state.h"

namespace ms::train {

// A layer with parameters NAME.weight and, where the model has it, NAME.bias.
class Linear {
 public:
  virtual ~Linear() = default;

  // Adds to the main_grad of those parameters that train. x: what forward read; dy: as WeightGradients has it of the
  // layer's backward.
  virtual void backward_weight(const core::TensorView& x, const core::TensorView& dy) = 0;
  const Parameter& weight() const { return weight_; }
  const LinearPrecision& precision() const { return precision_; }
  bool trains() const { return weight_.trains() || bias_trains(); }

 protected:
  bool bias_trains() const { return bias_ != nullptr && bias_->trains(); }
  Linear(RankState& state, ParameterStore& parameters, const std::string& name);

  RankState& state_;
  Parameter& weight_;
  Parameter* bias_;  // may be null
  LinearPrecision precision_;
};

// Its weight is cut by rows, its output by columns.
class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name);

  // x [seq', batch, in] -> [seq, batch, out / tp], of the whole sequence, which is gathered.
  core::Tensor forward(const core::TensorView& x);
  // dy [seq, batch, out / tp] -> the gradient of x, summed over TP. The weight's gradient goes to `weights`.
  core::Tensor backward(core::Tensor dy, core::Tensor x, WeightGradients& weights) {
    return start_backward(std::move(dy), std::move(x), weights).take();
  }
  core::Tensor backward_input(core::Tensor dy) { return start_backward_input(std::move(dy)).take(); }
  // The same, the gradient of x still to be summed.
  PartialSum start_backward(core::Tensor dy, core::Tensor x, WeightGradients& weights);
  PartialSum start_backward_input(core::Tensor dy);
  void backward_weight(const core::TensorView& x, const core::TensorView& dy) override;

  // The products alone, for a loss that takes some rows of a gathered sequence at a time. x [n, in] -> fp32
  // [n, out / tp]; dy [n, out / tp] -> the gradient of x, still to be summed over TP.
  core::Tensor forward_rows(const core::TensorView& x);
  core::Tensor backward_rows(const core::TensorView& x, const core::TensorView& dy);

 private:
  core::Tensor forward_in_parts(const core::TensorView& x, const SequenceParts& parts);
  // With --tp-comm-overlap: what TP communicates is under way while the products are computed.
  PartialSum start_overlapped_backward(core::Tensor dy, core::Tensor x, WeightGradients& weights);
  void add_gradients(const core::TensorView& full, const core::TensorView& dy);  // full: x of the whole sequence
};

// Its weight is cut by columns, its input too.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(RankState& state, ParameterStore& parameters, const std::string& name);

  // x [seq, batch, in / tp] -> [seq', batch, out], summed over TP, + bias + residual, each unless it is null; residual:
  // of the result's shape. Without TP one product does all.
  core::Tensor forward(const core::TensorView& x, const core::TensorView* residual) {
    return finish_forward(start_forward(x, residual), residual);
  }
  // The same in two halves, before and behind the sum.
  PartialSum start_forward(const core::TensorView& x, const core::TensorView* residual);
  core::Tensor finish_forward(PartialSum sum, const core::TensorView* residual);
  // dy [seq', batch, out], which is left as it is -> the gradient of x. The weight's gradient goes to `weights`.
  core::Tensor backward(core::Tensor& dy, core::Tensor x, WeightGradients& weights);
  // dy: of the whole sequence, [seq, batch, out].
  core::Tensor backward_input(const core::TensorView& dy);
  void backward_weight(const core::TensorView& x, const core::TensorView& dy) override;

 private:
  core::Tensor backward_in_parts(const core::TensorView& dy, const SequenceParts& parts, core::Tensor x,
                                 WeightGradients& weights);
};

}  // namespace ms::train
