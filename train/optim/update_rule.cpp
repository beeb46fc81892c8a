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

void AdamW::update(const Part& part, const Factors& factors) {
  const OptimizerConfig& config = rank_.config.optimizer;
  const std::span<float> exp_avg = of_state(0, part.begin, part.end), exp_avg_sq = of_state(1, part.begin, part.end);
  const ops::AdamwParameters parameters{.lr = factors.lr,
                                        .beta1 = config.adam_beta1,
                                        .beta2 = config.adam_beta2,
                                        .eps = config.adam_eps,
                                        .weight_decay = factors.weight_decay,
                                        .grad_scale = factors.grad_scale,
                                        .step = factors.step};
  if (part.shared) {
    ops::adamw(rank_.ops, *part.shared, part.grads, exp_avg, exp_avg_sq, parameters);
  } else {
    ops::adamw(rank_.ops, part.master, part.grads, exp_avg, exp_avg_sq, parameters, part.bf16);
  }
}

void Sgd::update(const Part& part, const Factors& factors) {
  MS_CHECK(!part.shared, "SGD has no state for split master weights");
  const ops::SgdParameters parameters{.lr = factors.lr,
                                      .momentum = rank_.config.optimizer.sgd_momentum,
                                      .weight_decay = factors.weight_decay,
                                      .grad_scale = factors.grad_scale};
  ops::sgd(rank_.ops, part.master, part.grads, has_state() ? of_state(0, part.begin, part.end) : std::span<float>(),
           parameters, part.bf16);
}

}  // namespace ms::train
