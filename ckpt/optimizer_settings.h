// Optimizer settings outside the tensors, in one form for all formats: parameter groups with their learning rate,
// betas, epsilon, weight decay and step, and the learning rate schedule.
//
// CheckpointInfo::common holds them (FORMAT.md section 6): either `optimizer.groups`, as converted checkpoints have it,
// or `config.optimizer`, `opt_param_scheduler` and `step`, as mstrain writes them; the groups are derived from these. A
// value that the checkpoint does not state is absent, never a default.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/source.h"
#include "core/io/json.h"

namespace ms::ckpt {

struct OptimizerGroup {
  std::optional<double> lr, weight_decay, beta1, beta2, eps;
  std::optional<int64_t> step;       // number of updates in the group's moments
  std::optional<double> initial_lr;  // base rate that a scheduler of torch.optim multiplies
  // Megatron's: bounds of the schedule for this group, multipliers of weight decay and learning rate.
  std::optional<double> max_lr, min_lr, wd_mult, lr_mult;
  // Other members of a torch.optim group (amsgrad, foreach, ..) with plain values, null included; an object.
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

// True if all members but params are equal.
bool same_settings(const OptimizerGroup& a, const OptimizerGroup& b);
// "lr 0.0003, weight_decay 0.05, betas 0.8 and 0.97, eps 1e-08, step 5", of SGD with its momentum; absent values are
// omitted.
std::string settings_text(const OptimizerGroup& group);

// Sets common["optimizer"]["groups"], and from the first group `step` and config.optimizer.adam_*, for programs that do
// not read groups. If `complete` (the groups list every parameter of the model), the largest group's params are
// omitted. With no groups, sets nothing.
void set_optimizer_groups(nlohmann::json& common, std::vector<OptimizerGroup> groups, bool complete);

// Sets the step if neither `common` nor one of its groups has one: some programs count it outside the optimizer state.
void set_missing_steps(nlohmann::json& common, int64_t step);

// What --decoupled-lr gives a learning rate of its own: Megatron's is_embedding_or_output_parameter.
bool is_embedding_or_output(std::string_view key);
// The norms of query and key heads, which --apply-wd-to-qk-layernorm decays.
bool is_qk_norm(std::string_view key);

// The groups of a checkpoint with optimizer state; empty if it states none. Derived groups follow Megatron and mstrain:
// weight decay for tensors with two or more axes (and norms of heads, with --apply-wd-to-qk-layernorm), none for other
// vectors; with --decoupled-lr another rate for word embeddings and output layer. Throws kCorruptData if malformed.
std::vector<OptimizerGroup> optimizer_groups(const Source& source);

// The group that contains the parameter; null if there is none.
const OptimizerGroup* group_of(std::span<const OptimizerGroup> groups, std::string_view key);

}  // namespace ms::ckpt
