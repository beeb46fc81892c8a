#include "ckpt/optimizer_settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <type_traits>

#include "ckpt/param_schedule.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::ckpt {
namespace {

using nlohmann::json;

constexpr std::string_view kWhere = "optimizer.groups in the checkpoint";

json member_of(const json& object, std::string_view key) {
  const auto found = object.is_object() ? object.find(std::string(key)) : object.end();
  return object.is_object() && found != object.end() ? *found : json();
}

std::optional<double> number_of(const json& object, const char* key) {
  const json value = member_of(object, key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

json group_to_json(const OptimizerGroup& group) {
  json made = json::object();
  visit_settings([&](const char* name, auto member) {
    if (group.*member) made[name] = *(group.*member);
  });
  if (!group.options.empty()) made["options"] = group.options;
  if (!group.params.empty()) made["params"] = group.params;
  return made;
}

OptimizerGroup group_from_json(const json& stored) {
  OptimizerGroup group;
  if (!stored.is_object())
    throw core::Error(core::ErrorCode::kCorruptData, core::cat(kWhere, ": a group is not an object"));
  visit_settings([&](const char* name, auto member) {
    using Value = typename std::remove_reference_t<decltype(group.*member)>::value_type;
    if (!stored.contains(name)) return;
    if constexpr (std::is_same_v<Value, int64_t>) {
      group.*member = core::json_count(stored, name, kWhere);
    } else {
      const json& value = stored.at(name);
      if (!value.is_number()) {
        throw core::Error(core::ErrorCode::kCorruptData, core::cat(kWhere, ": ", name, " is not a number"));
      }
      group.*member = value.get<double>();
    }
  });
  if (stored.contains("options")) group.options = core::json_object(stored, "options", kWhere);
  if (stored.contains("params")) {
    for (const json& name : core::json_array(stored, "params", kWhere)) {
      if (!name.is_string()) {
        throw core::Error(core::ErrorCode::kCorruptData,
                          core::cat(kWhere, ": params contains a value that is not a name"));
      }
      group.params.push_back(name.get<std::string>());
    }
  }
  return group;
}

// Derived from what mstrain and Megatron store: the schedule, and which tensors weight decay and --decoupled-lr are
// for.
std::vector<OptimizerGroup> derived_groups(const Source& source) {
  const json& common = source.info().common;
  OptimizerGroup group;
  const json adam = member_of(member_of(common, "config"), "optimizer");
  if (const auto momentum = number_of(adam, "sgd_momentum"); member_of(adam, "optimizer") == "sgd" && momentum) {
    group.options["momentum"] = *momentum;
  } else {
    group.beta1 = number_of(adam, "adam_beta1");
    group.beta2 = number_of(adam, "adam_beta2");
    group.eps = number_of(adam, "adam_eps");
  }
  const json scheduler = member_of(common, "opt_param_scheduler");
  const json done = member_of(scheduler, "num_steps");
  const auto schedule = schedule_from_json(scheduler);
  if (schedule && done.is_number()) {
    const auto num_steps = static_cast<int64_t>(std::clamp(done.get<double>(), 0.0, 9e18));
    group.lr = learning_rate(*schedule, num_steps);
    group.max_lr = schedule->max_lr;
    group.min_lr = schedule->min_lr;
    if (scheduler.contains("start_wd") && scheduler.contains("end_wd")) {
      group.weight_decay = weight_decay(*schedule, num_steps);
    }
  }
  if (member_of(common, "step").is_number_integer()) group.step = core::json_count(common, "step", "the checkpoint");
  if (same_settings(group, {})) return {};
  const json qk_norms = member_of(adam, "apply_wd_to_qk_layernorm");
  const bool qk_norms_decay = qk_norms.is_boolean() && qk_norms.get<bool>();
  const auto decoupled = schedule ? decoupled_schedule(*schedule) : std::nullopt;
  // With weight decay, without; the same of word embeddings and output layer. The first has all that no other lists.
  std::array<OptimizerGroup, 4> kinds = {group, group, group, group};
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const bool decays = kind % 2 == 0;
    if (group.weight_decay) kinds[kind].wd_mult = decays ? 1.0 : 0.0;
    if (group.weight_decay && !decays) kinds[kind].weight_decay = 0.0;
    if (kind < 2 || !decoupled || !group.lr) continue;
    kinds[kind].lr = learning_rate(*decoupled, static_cast<int64_t>(std::clamp(done.get<double>(), 0.0, 9e18)));
    kinds[kind].max_lr = decoupled->max_lr;
    kinds[kind].min_lr = decoupled->min_lr;
  }
  const ShardTable& shards = source.shards();
  for (size_t tensor = 0; tensor < shards.num_tensors(); ++tensor) {
    const auto index = static_cast<int32_t>(tensor);
    if (shards.role(index) != core::TensorRole::kParam) continue;
    const std::string_view key = shards.key(index);
    const bool decays = !group.weight_decay || shards.axes(index) >= 2 || (qk_norms_decay && is_qk_norm(key));
    const size_t kind = (decays ? 0U : 1U) + (decoupled && is_embedding_or_output(key) ? 2U : 0U);
    if (kind > 0) kinds[kind].params.emplace_back(key);
  }
  std::vector<OptimizerGroup> groups = {std::move(kinds[0])};
  for (size_t kind = 1; kind < kinds.size(); ++kind) {
    if (!kinds[kind].params.empty()) groups.push_back(std::move(kinds[kind]));
  }
  return groups;
}

}  // namespace

bool is_embedding_or_output(std::string_view key) {
  return key == "embedding.word_embeddings.weight" || key == "output_layer.weight";
}

bool is_qk_norm(std::string_view key) {
  return key.find("q_layernorm.") != std::string_view::npos || key.find("k_layernorm.") != std::string_view::npos;
}

bool same_settings(const OptimizerGroup& a, const OptimizerGroup& b) {
  bool same = a.options == b.options;
  visit_settings([&](const char*, auto member) { same = same && a.*member == b.*member; });
  return same;
}

std::string settings_text(const OptimizerGroup& group) {
  std::string text;
  const auto add = [&](std::string_view name, const auto&... values) {
    text += core::cat(text.empty() ? "" : ", ", name, " ", values...);
  };
  if (group.lr) add("lr", *group.lr);
  if (group.weight_decay) add("weight_decay", *group.weight_decay);
  if (group.beta1 && group.beta2) add("betas", *group.beta1, " and ", *group.beta2);
  if (group.eps) add("eps", *group.eps);
  if (const json momentum = member_of(group.options, "momentum"); momentum.is_number())
    add("momentum", momentum.get<double>());
  if (group.step) add("step", *group.step);
  return text.empty() ? "nothing stated" : text;
}

void set_optimizer_groups(json& common, std::vector<OptimizerGroup> groups, bool complete) {
  if (groups.empty()) return;
  if (complete) {
    const auto largest = std::max_element(
        groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.params.size() < b.params.size(); });
    largest->params.clear();
  }
  json& stored = common["optimizer"]["groups"] = json::array();
  for (const OptimizerGroup& group : groups) stored.push_back(group_to_json(group));
  const OptimizerGroup& first = groups[0];
  if (first.step) common["step"] = *first.step;
  const std::pair<const char*, std::optional<double>> adam[] = {
      {"adam_beta1", first.beta1}, {"adam_beta2", first.beta2}, {"adam_eps", first.eps}};
  for (const auto& [name, value] : adam) {
    if (value) common["config"]["optimizer"][name] = *value;
  }
}

void set_missing_steps(json& common, int64_t step) {
  if (!common.contains("step")) common["step"] = step;
  if (!common.contains("optimizer")) return;
  for (json& group : common["optimizer"]["groups"]) {
    if (!group.contains("step")) group["step"] = step;
  }
}

std::vector<OptimizerGroup> optimizer_groups(const Source& source) {
  const json stored = member_of(member_of(source.info().common, "optimizer"), "groups");
  if (!stored.is_array() || stored.empty()) return derived_groups(source);
  std::vector<OptimizerGroup> groups;
  size_t open = 0;  // number of groups without params, which hold all other parameters
  std::set<std::string_view> seen;
  for (const json& one : stored) {
    groups.push_back(group_from_json(one));
    open += groups.back().params.empty() ? 1 : 0;
  }
  for (const OptimizerGroup& group : groups) {
    for (const std::string& name : group.params) {
      if (!seen.insert(name).second) {
        throw core::Error(core::ErrorCode::kCorruptData, core::cat(kWhere, ": ", name, " is in two groups"));
      }
    }
  }
  const json step = member_of(source.info().common, "step");
  for (OptimizerGroup& group : groups) {
    if (!group.step && step.is_number_integer()) {
      group.step = core::json_count(source.info().common, "step", "the checkpoint");
    }
  }
  if (open > 1) {
    throw core::Error(core::ErrorCode::kCorruptData,
                      core::cat(kWhere, ": ", open, " groups list no params; at most one may"));
  }
  return groups;
}

const OptimizerGroup* group_of(std::span<const OptimizerGroup> groups, std::string_view key) {
  const OptimizerGroup* rest = nullptr;
  for (const OptimizerGroup& group : groups) {
    if (group.params.empty()) rest = &group;
    if (std::find(group.params.begin(), group.params.end(), key) != group.params.end()) return &group;
  }
  return rest;
}

}  // namespace ms::ckpt
