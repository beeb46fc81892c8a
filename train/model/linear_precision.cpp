#include "train/model/linear_precision.h"

#include "core/error.h"

namespace ms::train {
namespace {

constexpr int64_t kFewRows = 64;  // of a product that reads the weight in place (kernels/gemm/gemm.h, "skinny")

}  // namespace

LinearPrecision::LinearPrecision(RankState& state, Parameter& weight)
    : ops_(state.ops),
      weight_(weight),
      sum_(state.config.training.gradient_accumulation_fusion ? ops::WeightGradientSum::kInProduct
                                                              : ops::WeightGradientSum::kRounded) {}

void LinearPrecision::check_operand(const core::TensorView& operand, const char* what) const {
  MS_CHECK(operand.dtype() == operands(), weight_.spec.key, ": ", what, " is ", core::dtype_name(operand.dtype()),
           ", the weight ", core::dtype_name(operands()));
}

core::Tensor LinearPrecision::forward(const core::TensorView& x, const ops::LinearEpilogue& epilogue) {
  check_operand(x, "x");
  return ops::linear(ops_, x, weight_.weight, epilogue, weight_.packed.get());
}

LinearPrecision::Parts::Parts(LinearPrecision& precision, int64_t rows) : precision_(precision) {
  const bool lasts = precision.weight_.packed != nullptr;
  if (!lasts && rows > kFewRows) packed_.emplace(kChanges, core::MemoryTag::kTmp);
}

void LinearPrecision::Parts::forward_into(const core::TensorView& x, const core::TensorView& y,
                                          const ops::LinearEpilogue& epilogue) {
  precision_.check_operand(x, "x");
  Parameter& weight = precision_.weight_;
  ops::linear_into(precision_.ops_, x, weight.weight, y, epilogue, packed_ ? &*packed_ : weight.packed.get());
}

core::Tensor LinearPrecision::forward_fp32(const core::TensorView& x) {
  check_operand(x, "x");
  return ops::linear_fp32(ops_, x, weight_.weight, weight_.packed.get());
}

core::Tensor LinearPrecision::backward_input(const core::TensorView& dy) {
  check_operand(dy, "dy");
  return ops::linear_dgrad(ops_, dy, weight_.weight, weight_.packed.get());
}

void LinearPrecision::backward_input_into(const core::TensorView& dy, const core::TensorView& dx) {
  check_operand(dy, "dy");
  ops::linear_dgrad_into(ops_, dy, weight_.weight, dx, weight_.packed.get());
}

void LinearPrecision::backward_weight(const core::TensorView& x, const core::TensorView& dy) {
  check_operand(x, "x");
  check_operand(dy, "dy");
  ops::linear_wgrad(ops_, x, dy, weight_.main_grad, sum_);
}

}  // namespace ms::train
