// How a linear layer computes its products: the type of the operands, what results and gradients of the weight are
// rounded to, and whether packed copies of the weight are read. The layer itself knows communication and bias only.
#pragma once

#include <optional>

#include "core/dtype.h"
#include "core/tensor.h"
#include "train/model/parameters.h"
#include "train/ops/linear.h"
#include "train/rank_state.h"

namespace ms::train {

// x, dy and the weight have one type, --bf16's, --fp16's or fp32; sums are fp32.
class LinearPrecision {
 public:
  // weight: of the layer, must stay where it is.
  LinearPrecision(RankState& state, Parameter& weight);

  // x [.., in] -> x * weight^T [.., out], with the epilogue, rounded once to the operands' type.
  core::Tensor forward(const core::TensorView& x, const ops::LinearEpilogue& epilogue);
  // The same for parts of one x, each into its rows of a larger result. Unless the weight has a packed copy that lasts,
  // the parts share one that is made for them: packing it again for each of four parts of 512 rows took 7 % of their
  // time.
  class Parts {
   public:
    // rows: of one part.
    Parts(LinearPrecision& precision, int64_t rows);
    void forward_into(const core::TensorView& x, const core::TensorView& y, const ops::LinearEpilogue& epilogue);

   private:
    static constexpr int64_t kChanges = 0;
    LinearPrecision& precision_;
    std::optional<ops::PackedWeight> packed_;
  };
  // The same in fp32, for logits.
  core::Tensor forward_fp32(const core::TensorView& x);
  // dy [.., out] -> dy * weight [.., in], in the operands' type.
  core::Tensor backward_input(const core::TensorView& dy);
  void backward_input_into(const core::TensorView& dy, const core::TensorView& dx);
  // Adds dy^T * x to the weight's main_grad.
  void backward_weight(const core::TensorView& x, const core::TensorView& dy);

  core::DType operands() const { return weight_.weight.dtype(); }
  ops::WeightGradientSum weight_gradient_sum() const { return sum_; }
  bool reads_packed_weight() const { return weight_.packed != nullptr; }

 private:
  void check_operand(const core::TensorView& operand, const char* what) const;

  ops::Context& ops_;
  Parameter& weight_;
  ops::WeightGradientSum sum_;
};

}  // namespace ms::train
