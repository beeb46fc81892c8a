// What steers an optimizer from outside its tensors, in one form for all formats: the groups of parameters with their
// learning rate, betas, epsilon, weight decay and step, and the schedule of the learning rate.
//
// CheckpointInfo::common holds it (FORMAT.md section 6): `optimizer.groups` as a converted checkpoint has it, or, as
// mstrain writes it, `config.optimizer`, `opt_param_scheduler` and `step`, of which the groups are derived. A value
// that nobody stated is absent, never a default.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"

namespace ms::ckpt {

struct OptimizerGroup {
  std::optional<double> lr, weight_decay, beta1, beta2, eps;
  std::optional<int64_t> step;       // updates that the group's moments hold
  std::optional<double> initial_lr;  // of a scheduler of torch.optim: what it multiplies
  // Megatron's: bounds of the schedule for this group, factors of weight decay and learning rate.
  std::optional<double> max_lr, min_lr, wd_mult, lr_mult;
  // Further members of a group of torch.optim (amsgrad, foreach, ..) with plain values, null among them; an object.
  nlohmann::json options = nlohmann::json::object();
  std::vector<std::string> params;  // canonical keys; empty: all parameters that no other group lists
};

// The fields of a group by name, in the order of FORMAT.md: visit(name, member).
template <class Visitor>
void visit_settings(Visitor&& visit) {
  using G = OptimizerGroup;
  visit("lr", &G::lr);
  visit("weight_decay", &G::weight_decay);
  visit("beta1", &G::beta1);
  visit("beta2", &G::beta2);
  visit("eps", &G::eps);
  visit("step", &G::step);
  visit("initial_lr", &G::initial_lr);
  visit("max_lr", &G::max_lr);
  visit("min_lr", &G::min_lr);
  visit("wd_mult", &G::wd_mult);
  visit("lr_mult", &G::lr_mult);
}

// Whether all but params are equal.
bool same_settings(const OptimizerGroup& a, const OptimizerGroup& b);
// "lr 0.0003, weight_decay 0.05, betas 0.8 and 0.97, eps 1e-08, step 5": what is stated of these.
std::string settings_text(const OptimizerGroup& group);

// Sets common["optimizer"]["groups"], and from the first group `step` and config.optimizer.adam_*, by which programs
// that know no groups go. The largest group's params are left out if `complete`: the groups list every parameter of the
// model. No groups: sets nothing.
void set_optimizer_groups(nlohmann::json& common, std::vector<OptimizerGroup> groups, bool complete);

// Sets the step where neither `common` nor a group of it states one: of a program that counts it beside the moments.
void set_missing_steps(nlohmann::json& common, int64_t step);

// The groups of a checkpoint with optimizer state; empty if nothing is stated. Derived groups are those of Megatron and
// mstrain: weight decay for tensors of two and more axes, none for vectors. Throws kCorruptData for malformed `common`.
std::vector<OptimizerGroup> optimizer_groups(const Source& source);

// The group that a parameter is in; null: in none.
const OptimizerGroup* group_of(std::span<const OptimizerGroup> groups, std::string_view key);

}  // namespace ms::ckpt
