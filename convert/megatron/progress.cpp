#include "convert/megatron/progress.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "convert/megatron/param_groups.h"

namespace ms::convert {
namespace {

using nlohmann::json;

// Members of args that are copied, and their place in mstrain's config, which uses Megatron's names.
struct Setting {
  const char *group, *name;
};
constexpr Setting kSettings[] = {{"training", "seq_length"},  {"data", "tokenizer_type"},  {"data", "tokenizer_model"},
                                 {"optimizer", "adam_beta1"}, {"optimizer", "adam_beta2"}, {"optimizer", "adam_eps"}};

// Members that OptimizerParamScheduler.load_state_dict requires, and those that it reads if start_wd is present.
constexpr const char* kSchedule[] = {"max_lr",         "min_lr",         "lr_warmup_steps",
                                     "lr_decay_steps", "lr_decay_style", "num_steps"};
constexpr const char* kDecaySchedule[] = {"start_wd", "end_wd", "wd_incr_steps", "wd_incr_style"};

MegatronArg to_arg(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string() && !value.get<std::string>().empty()) return value.get<std::string>();
  return std::monostate();
}

// Returns null if the config lacks it.
json config_value(const ckpt::CheckpointInfo& info, const Setting& setting) {
  json found = info.common;
  for (const char* key : {"config", setting.group, setting.name}) {
    found = found.is_object() ? json(found.value(key, json())) : json();
  }
  return found;
}

}  // namespace

nlohmann::json plain_json(PickleValue value) {
  if (value.is(PickleKind::kBool)) return value.boolean();
  if (value.is(PickleKind::kInt)) return value.integer();
  if (value.is(PickleKind::kFloat)) return value.real();
  if (!value.is(PickleKind::kString)) return nullptr;
  // A pickled string may be invalid UTF-8, which JSON cannot hold; a string that changes when sanitized is left out.
  json text = std::string(value.text());
  const std::string clean = text.dump(-1, ' ', false, json::error_handler_t::ignore);
  return json::parse(clean) == text ? text : json();
}

void add_megatron_optimizer(PickleValue optimizer, const MegatronArgs& args,
                            std::span<const layout::ParameterSpec> specs, ckpt::CheckpointInfo& info) {
  read_megatron_groups(optimizer, specs, {.qk_norms_decay = args.is_set("apply_wd_to_qk_layernorm")}, info.common);
}

void add_megatron_progress(PickleValue state, const MegatronArgs& args, std::span<const layout::ParameterSpec> specs,
                           ckpt::CheckpointInfo& info) {
  if (const auto iteration = state.find("iteration"); iteration && iteration->is(PickleKind::kInt)) {
    info.iteration = iteration->integer();
  }
  info.common["consumed_train_samples"] = args.integer("consumed_train_samples").value_or(0);
  for (const Setting& setting : kSettings) {
    if (const auto value = args.find(setting.name))
      info.common["config"][setting.group][setting.name] = plain_json(*value);
  }
  if (const auto optimizer = state.find("optimizer")) add_megatron_optimizer(*optimizer, args, specs, info);
  const auto scheduler = state.find("opt_param_scheduler");
  if (!scheduler || !scheduler->is(PickleKind::kDict)) return;
  json& common = info.common["opt_param_scheduler"] = json::object();
  for (const auto& [key, value] : scheduler->pairs()) {
    if (!key.is(PickleKind::kString)) continue;
    if (json known = plain_json(value); !known.is_null()) common[std::string(key.text())] = std::move(known);
  }
}

MegatronArgList megatron_progress_args(const ckpt::CheckpointInfo& info) {
  MegatronArgList args;
  args.emplace_back("iteration", info.iteration);
  args.emplace_back("consumed_train_samples", info.common.is_object()
                                                  ? to_arg(info.common.value("consumed_train_samples", json(0)))
                                                  : int64_t{0});
  args.emplace_back("consumed_valid_samples", int64_t{0});
  for (const Setting& setting : kSettings) args.emplace_back(setting.name, to_arg(config_value(info, setting)));
  return args;
}

json megatron_scheduler(const ckpt::CheckpointInfo& info) {
  const json found = info.common.is_object() ? info.common.value("opt_param_scheduler", json()) : json();
  if (!found.is_object()) return nullptr;
  json scheduler = json::object();
  const auto take = [&](const char* key) {
    if (!found.contains(key)) return false;
    const json& value = found.at(key);
    const bool is_style = std::string_view(key).ends_with("_style");
    if (is_style != value.is_string() || !(is_style || value.is_number())) return false;
    // Our step counts may be fractional numbers; whole values are written as integers.
    const bool is_whole = value.is_number_float() && value.get<double>() == std::floor(value.get<double>());
    const bool is_count = std::string_view(key).ends_with("_steps");
    scheduler[key] = is_count && is_whole ? json(std::llround(value.get<double>())) : value;
    return true;
  };
  if (!std::all_of(std::begin(kSchedule), std::end(kSchedule), take)) return nullptr;
  if (!std::all_of(std::begin(kDecaySchedule), std::end(kDecaySchedule), take)) {
    for (const char* key : kDecaySchedule) scheduler.erase(key);
  }
  return scheduler;
}

}  // namespace ms::convert
