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

core::Tensor Experts::forward(MoeActivations& saved) {
  refill(saved);
  saved.product = activation_.forward(saved.fc1);
  core::Tensor y = fc2_.forward(saved.product, saved.ends);
  return y;
}

// The weight of a row has the gradient <dy, W2 product> = <W2^T dy, product>, which needs no result of linear_fc2; that
// of W2 is dy (weight product)^T.
Experts::Gradients Experts::backward(core::Tensor dy, const core::TensorView& weights, MoeActivations& saved) {
  ops::Context& ops = state_.ops;
  if (!saved.product.defined()) saved.product = activation_.forward(saved.fc1);
  Gradients gradients;
  core::Tensor dproduct = fc2_.backward_input(dy, saved.ends);
  gradients.weights = ops::row_dots(ops, dproduct, saved.product);
  ops::scale_rows_inplace(ops, dproduct, weights);
  ops::scale_rows_inplace(ops, saved.product, weights);
  fc2_.backward_weight(saved.product, dy, saved.ends);
  saved.product.reset();
  dy.reset();
  const core::Tensor dfc1 = activation_.backward(dproduct, std::move(saved.fc1));
  dproduct.reset();
  gradients.permuted = fc1_.backward_input(dfc1, saved.ends);
  fc1_.backward_weight(saved.permuted, dfc1, saved.ends);
  saved.permuted.reset();
  return gradients;
}

}  // namespace ms::train
