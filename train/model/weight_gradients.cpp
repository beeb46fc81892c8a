#include "train/model/weight_gradients.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/layout/buffer_cut.h"
#include "train/model/grouped_linear.h"
#include "train/model/linear.h"
#include "train/model/parameter_observer.h"

namespace ms::train {

void WeightGradients::defer(TensorSwap* swap) {
  deferred_ = true;
  swap_ = swap;
}

void WeightGradients::add(Linear& linear, core::Tensor x, core::Tensor dy) {
  if (!linear.trains()) return;
  if (deferred_) {
    kept_.push_back({&linear, nullptr, std::move(x), std::move(dy), {}, {}, {}});
  } else {
    linear.backward_weight(x, dy);
  }
}

void WeightGradients::add(GroupedLinear& linear, core::Tensor x, core::Tensor dy, std::span<const int64_t> ends) {
  if (!linear.trains()) return;
  if (deferred_) {
    kept_.push_back({nullptr, &linear, std::move(x), std::move(dy), {ends.begin(), ends.end()}, {}, {}});
  } else {
    linear.backward_weight(x, dy, ends);
  }
}

const Parameter& WeightGradients::Operands::weight() const {
  return experts != nullptr ? experts->weight() : linear->weight();
}

void WeightGradients::Operands::compute() {
  experts != nullptr ? experts->backward_weight(x, dy, ends) : linear->backward_weight(x, dy);
}

void WeightGradients::swap_out() {
  if (swap_ == nullptr) return;
  settle();
  for (; leaving_ < kept_.size(); ++leaving_) {
    Operands& operands = kept_[leaving_];
    swap_->start_out(operands.x, operands.swapped_x);
    swap_->start_out(operands.dy, operands.swapped_dy);
  }
}

void WeightGradients::settle() {
  for (; left_ < leaving_; ++left_) {
    Operands& operands = kept_[left_];
    swap_->finish_out(operands.x, operands.swapped_x);
    swap_->finish_out(operands.dy, operands.swapped_dy);
  }
}

void WeightGradients::prefetch(size_t first) {
  if (swap_ == nullptr) return;
  for (size_t i = first; i < std::min(first + layout::kLinearsOfLayer, kept_.size()); ++i) {
    swap_->start_in(kept_[i].x, kept_[i].swapped_x);
    swap_->start_in(kept_[i].dy, kept_[i].swapped_dy);
  }
}

void WeightGradients::run(ParameterObserver* observer, bool are_final) {
  const auto unit_at = [&](size_t i) {
    return i < kept_.size() ? std::optional(layout::unit_of(kept_[i].weight().spec)) : std::nullopt;
  };
  std::optional<int64_t> acquired;
  settle();
  for (size_t i = 0; i < kept_.size(); ++i) {
    Operands& operands = kept_[i];
    if (swap_ != nullptr) {
      prefetch(i);
      // What is lost is zeros: the run ends after this step.
      (void)swap_->finish_in(operands.swapped_x);
      (void)swap_->finish_in(operands.swapped_dy);
    }
    if (observer != nullptr && unit_at(i) != acquired) observer->acquire_gradients(*(acquired = unit_at(i)));
    operands.compute();
    operands.x.reset();
    operands.dy.reset();
    if (observer == nullptr || unit_at(i + 1) == acquired) continue;
    observer->gradients_are_added(*acquired);
    if (are_final) observer->gradients_are_final(*acquired);
  }
  kept_.clear();
  deferred_ = false;
  swap_ = nullptr;
  left_ = leaving_ = 0;
}

}  // namespace ms::train
