#include "train/model/norm.h"

#include <utility>

#include "train/ops/unfused.h"

namespace ms::train {

Norm::Norm(RankState& state, ParameterStore& parameters, const std::string& weight, const std::string& bias)
    : state_(state),
      params_{state.config.model.norm_epsilon, state.config.model.apply_layernorm_1p ? 1.0 : 0.0},
      fused_(state.config.training.fuses_rmsnorm()),
      weight_(parameters.at(weight)),
      bias_(state.config.model.has_layer_norm() ? &parameters.at(bias) : nullptr) {}

std::optional<Norm> optional_norm(bool is_there, RankState& state, ParameterStore& parameters,
                                  const std::string& name) {
  if (!is_there) return std::nullopt;
  return Norm(state, parameters, name + ".weight", name + ".bias");
}

core::Tensor Norm::forward(const core::TensorView& x, ops::NormStatistics& saved) {
  if (bias_ == nullptr) {
    return fused_ ? ops::rms_norm(state_.ops, x, weight_.weight, params_, &saved.rstd)
                  : ops::unfused::rms_norm(state_.ops, x, weight_.weight, params_, &saved.rstd);
  }
  return ops::layer_norm(state_.ops, x, weight_.weight, bias_->weight, params_, &saved);
}

void Norm::recompute(const core::TensorView& x, core::Tensor& y) {
  if (y.defined()) return;
  ops::NormStatistics same;
  y = forward(x, same);
}

core::TensorView Norm::gradient_of(const Parameter& parameter, core::Tensor& unused) {
  if (parameter.trains()) return parameter.main_grad;
  unused = core::Tensor(state_.ops.arena, core::DType::kFp32, parameter.weight.shape(), core::MemoryTag::kTmp);
  return unused;
}

core::Tensor Norm::backward_into(const core::TensorView& dy, const core::TensorView& x,
                                 const ops::NormStatistics& saved, const core::TensorView* dresidual,
                                 core::Tensor into) {
  core::Tensor unused_dweight, unused_dbias;
  const core::TensorView dweight = gradient_of(weight_, unused_dweight);
  if (bias_ == nullptr && !fused_) {
    return ops::unfused::rms_norm_backward(state_.ops, dy, x, weight_.weight, params_, saved.rstd, dweight, dresidual);
  }
  if (bias_ == nullptr) {
    return ops::rms_norm_backward(state_.ops, dy, x, weight_.weight, params_, saved.rstd, dweight, dresidual,
                                  std::move(into));
  }
  return ops::layer_norm_backward(state_.ops, dy, x, weight_.weight, params_, saved, dweight,
                                  gradient_of(*bias_, unused_dbias), dresidual, std::move(into));
}

}  // namespace ms::train
