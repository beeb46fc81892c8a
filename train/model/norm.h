// A norm layer of the model, RMSNorm or LayerNorm as configured, with its parameters.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "train/model/parameters.h"
#include "train/ops/norm.h"
#include "train/rank_state.h"

namespace ms::train {

class Norm {
 public:
  // weight, bias: canonical names of its parameters; RMSNorm has no bias.
  Norm(RankState& state, ParameterStore& parameters, const std::string& weight, const std::string& bias);

  // x [.., h] -> y of the same shape; fills what backward needs besides x.
  core::Tensor forward(const core::TensorView& x, ops::NormStatistics& saved);
  // Makes y, forward's result, once more where it was dropped.
  void recompute(const core::TensorView& x, core::Tensor& y);
  // -> dx [+ dresidual, the gradient that arrives past the norm]. Adds to the parameters' main_grad.
  core::Tensor backward(const core::TensorView& dy, const core::TensorView& x, const ops::NormStatistics& saved,
                        const core::TensorView* dresidual = nullptr) {
    return backward_into(dy, x, saved, dresidual, {});
  }
  // The same in the memory of dy; the unfused operators allocate their result.
  core::Tensor backward_over(core::Tensor dy, const core::TensorView& x, const ops::NormStatistics& saved,
                             const core::TensorView* dresidual = nullptr) {
    const core::TensorView read = dy;
    return backward_into(read, x, saved, dresidual, std::move(dy));
  }

 private:
  core::Tensor backward_into(const core::TensorView& dy, const core::TensorView& x, const ops::NormStatistics& saved,
                             const core::TensorView* dresidual, core::Tensor into);
  // main_grad, or memory for a gradient that nobody reads.
  core::TensorView gradient_of(const Parameter& parameter, core::Tensor& unused);

  RankState& state_;
  ops::NormParams params_;
  bool fused_;
  Parameter& weight_;
  Parameter* bias_;  // null: RMSNorm
};

// The norm with parameters NAME.weight and NAME.bias, where the model has it.
std::optional<Norm> optional_norm(bool is_there, RankState& state, ParameterStore& parameters, const std::string& name);

}  // namespace ms::train
