#include "train/model/experts.h"

#include <utility>

#include "train/ops/row_scale.h"

namespace ms::train {

Experts::Experts(RankState& state, ParameterStore& parameters, const std::string& name)
    : state_(state),
      fc1_(state, parameters, name, "linear_fc1"),
      fc2_(state, parameters, name, "linear_fc2"),
      activation_(state) {}

void Experts::refill(MoeActivations& saved) { saved.fc1 = fc1_.forward(saved.permuted, saved.ends); }

core::Tensor Experts::forward(MoeActivations& saved, const layout::LayerSlots& slots) {
  using enum layout::SavedSlot;
  refill(saved);
  if (slots.module_drops(kPermuted)) saved.permuted.reset();
  saved.product = activation_.forward(saved.fc1);
  if (slots.module_drops(kFc1)) saved.fc1.reset();
  core::Tensor y = fc2_.forward(saved.product, saved.ends);
  if (slots.module_drops(kProduct)) saved.product.reset();
  return y;
}

// The weight of a row has the gradient <dy, W2 product> = <W2^T dy, product>, which needs no result of linear_fc2; that
// of W2 is dy (weight product)^T.
Experts::Gradients Experts::backward(core::Tensor dy, const core::TensorView& of_rows, MoeActivations& saved,
                                     core::FunctionRef<void()> bring, WeightGradients& weights, ExpertOperands* later) {
  ops::Context& ops = state_.ops;
  if (!saved.fc1.defined()) {
    if (!saved.permuted.defined()) bring();
    refill(saved);
  }
  if (!saved.product.defined()) saved.product = activation_.forward(saved.fc1);
  Gradients gradients;
  ExpertOperands operands;
  core::Tensor dproduct = fc2_.backward_input(dy, saved.ends);
  gradients.weights = ops::row_dots(ops, dproduct, saved.product);
  ops::scale_rows_inplace(ops, dproduct, of_rows);
  ops::scale_rows_inplace(ops, saved.product, of_rows);
  operands.product = std::move(saved.product);
  operands.dy = std::move(dy);
  if (later == nullptr) backward_fc2_weights(operands, saved, weights);
  operands.dfc1 = activation_.backward(dproduct, std::move(saved.fc1));
  dproduct.reset();
  gradients.permuted = fc1_.backward_input(operands.dfc1, saved.ends);
  if (later == nullptr) {
    backward_fc1_weights(operands, saved, bring, weights);
  } else {
    *later = std::move(operands);
  }
  return gradients;
}

void Experts::backward_fc1_weights(ExpertOperands& operands, MoeActivations& saved, core::FunctionRef<void()> bring,
                                   WeightGradients& weights) {
  if (!saved.permuted.defined()) bring();
  weights.add(fc1_, std::move(saved.permuted), std::move(operands.dfc1), saved.ends);
}

void Experts::backward_fc2_weights(ExpertOperands& operands, const MoeActivations& saved, WeightGradients& weights) {
  weights.add(fc2_, std::move(operands.product), std::move(operands.dy), saved.ends);
}

void Experts::backward_weights(ExpertOperands operands, MoeActivations& saved, core::FunctionRef<void()> bring,
                               WeightGradients& weights) {
  backward_fc2_weights(operands, saved, weights);
  backward_fc1_weights(operands, saved, bring, weights);
}

}  // namespace ms::train
