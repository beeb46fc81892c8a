#include "train/model/weight_gradients.h"

#include <utility>

#include "train/model/linear.h"

namespace ms::train {

void WeightGradients::add(Linear& linear, core::Tensor x, core::Tensor dy) {
  if (deferred_) {
    kept_.push_back({&linear, std::move(x), std::move(dy)});
  } else {
    linear.backward_weight(x, dy);
  }
}

void WeightGradients::run() {
  for (Operands& operands : kept_) {
    operands.linear->backward_weight(operands.x, operands.dy);
    operands.x.reset();
    operands.dy.reset();
  }
  kept_.clear();
  deferred_ = false;
}

}  // namespace ms::train
