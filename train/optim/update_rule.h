// How an optimizer changes weights by their gradients, and the state that it keeps for that, by role: what checkpoints,
// messages and memory formulas go over without knowing the optimizer.
//
// To add one: its roles in optimizer_state_roles, a class, a line in make_update_rule.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/sharded_tensor.h"
#include "kernels/bf16.h"
#include "train/memory/state_memory.h"
#include "train/ops/optimizer.h"
#include "train/rank_state.h"

namespace ms::train {

// What the optimizer keeps besides master weights.
std::vector<core::TensorRole> optimizer_state_roles(const OptimizerConfig& config);

class UpdateRule {
 public:
  // memory: not owned; from its state `first` on it has those of optimizer_state_roles.
  UpdateRule(RankState& state, const StateMemory& memory, size_t first)
      : rank_(state), memory_(memory), first_(first) {}
  virtual ~UpdateRule() = default;

  struct Factors {
    double lr = 0, weight_decay = 0;
    int64_t step = 1;      // 1 for the first update of the run
    float grad_scale = 1;  // multiplies the gradients first
  };
  // Elements of one parameter, whose state is in memory.
  struct Part {
    int64_t begin = 0, end = 0;     // in the owned range
    std::span<float> grads;         // 0 afterwards
    std::span<float> master;        // empty with `shared`
    std::span<kernels::bf16> bf16;  // receives the new weights, rounded; may be empty
    std::optional<ops::SharedMaster> shared;
    Factors factors;
  };
  // One operator for all of them.
  virtual void update(std::span<const Part> parts) = 0;

  // Elements [begin, end) of a state that is never negative, whose sign bits --reuse-fp32-param may use; empty: there
  // is none.
  virtual std::span<float> unsigned_state(int64_t begin, int64_t end) const = 0;

 protected:
  bool has_state() const { return memory_.roles().size() > first_; }
  // Elements of the i-th state.
  std::span<float> of_state(size_t i, int64_t begin, int64_t end) const { return memory_.of(first_ + i, begin, end); }
  RankState& rank_;

 private:
  const StateMemory& memory_;
  size_t first_;
};

std::unique_ptr<UpdateRule> make_update_rule(RankState& state, const StateMemory& memory, size_t first);

// Loshchilov & Hutter 2019.
class AdamW : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;
  void update(std::span<const Part> parts) override;
  std::span<float> unsigned_state(int64_t begin, int64_t end) const override { return of_state(1, begin, end); }

 private:
  std::vector<ops::AdamwTensor> tensors_;  // of an update
};

// torch.optim.SGD as Megatron makes it: momentum without dampening and nesterov, weight decay added to the gradient.
// With --sgd-momentum 0 it has no state, as torch's.
class Sgd : public UpdateRule {
 public:
  using UpdateRule::UpdateRule;
  void update(std::span<const Part> parts) override;
  std::span<float> unsigned_state(int64_t, int64_t) const override { return {}; }

 private:
  std::vector<ops::SgdTensor> tensors_;
};

}  // namespace ms::train
