#include "train/optim/update_rule.h"

#include "core/error.h"

namespace ms::train {

std::vector<core::TensorRole> optimizer_state_roles(const OptimizerConfig& config) {
  if (config.optimizer != "sgd") return {core::TensorRole::kExpAvg, core::TensorRole::kExpAvgSq};
  if (config.sgd_momentum == 0) return {};
  return {core::TensorRole::kMomentumBuffer};
}

std::unique_ptr<UpdateRule> make_update_rule(RankState& state, const StateMemory& memory, size_t first) {
  if (state.config.optimizer.optimizer == "sgd") return std::make_unique<Sgd>(state, memory, first);
  return std::make_unique<AdamW>(state, memory, first);
}

void AdamW::update(std::span<const Part> parts) {
  const OptimizerConfig& config = rank_.config.optimizer;
  tensors_.clear();
  for (const Part& part : parts) {
    ops::AdamwTensor& tensor = tensors_.emplace_back();
    if (part.shared) tensor.shared = *part.shared;
    tensor.master = part.master, tensor.grad = part.grads, tensor.param_bf16 = part.bf16;
    tensor.exp_avg = of_state(0, part.begin, part.end), tensor.exp_avg_sq = of_state(1, part.begin, part.end);
    tensor.parameters = {.lr = part.factors.lr,
                         .beta1 = config.adam_beta1,
                         .beta2 = config.adam_beta2,
                         .eps = config.adam_eps,
                         .weight_decay = part.factors.weight_decay,
                         .grad_scale = part.factors.grad_scale,
                         .step = part.factors.step};
  }
  ops::adamw(rank_.ops, tensors_);
}

void Sgd::update(std::span<const Part> parts) {
  tensors_.clear();
  for (const Part& part : parts) {
    MS_CHECK(!part.shared, "SGD has no state for split master weights");
    ops::SgdTensor& tensor = tensors_.emplace_back();
    tensor.master = part.master, tensor.grad = part.grads, tensor.param_bf16 = part.bf16;
    if (has_state()) tensor.momentum_buffer = of_state(0, part.begin, part.end);
    tensor.parameters = {.lr = part.factors.lr,
                         .momentum = rank_.config.optimizer.sgd_momentum,
                         .weight_decay = part.factors.weight_decay,
                         .grad_scale = part.factors.grad_scale};
  }
  ops::sgd(rank_.ops, tensors_);
}

}  // namespace ms::train
