#include "convert/megatron/progress.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace ms::convert {
namespace {

using nlohmann::json;

// Of the first of param_groups, which have all made as many. An optimizer may hold another, or several.
std::optional<int64_t> step_of(PickleValue optimizer) {
  for (int depth = 0; depth < 4; ++depth) {
    if (const auto groups = optimizer.find("param_groups"); groups && groups->is(PickleKind::kList)) {
      const auto all = groups->items();
      const auto step = all.empty() ? std::nullopt : all[0].find("step");
      if (!step || !(step->is(PickleKind::kInt) || step->is(PickleKind::kFloat))) return std::nullopt;
      const double steps = step->real();
      return steps >= 0 && steps < 1e15 ? std::optional(std::llround(steps)) : std::nullopt;
    }
    std::optional<PickleValue> inner = optimizer.find("optimizer");
    if (!inner && optimizer.is(PickleKind::kList) && !optimizer.items().empty()) inner = optimizer.items()[0];
    if (!inner) return std::nullopt;
    optimizer = *inner;
  }
  return std::nullopt;
}

}  // namespace

void add_megatron_progress(PickleValue state, const MegatronArgs& args, ckpt::CheckpointInfo& info) {
  if (const auto iteration = state.find("iteration"); iteration && iteration->is(PickleKind::kInt)) {
    info.iteration = iteration->integer();
  }
  info.common["consumed_train_samples"] = args.integer("consumed_train_samples").value_or(0);
  if (const auto optimizer = state.find("optimizer")) {
    if (const auto step = step_of(*optimizer)) info.common["step"] = *step;
  }
  const auto scheduler = state.find("opt_param_scheduler");
  if (!scheduler || !scheduler->is(PickleKind::kDict)) return;
  json& common = info.common["opt_param_scheduler"] = json::object();
  for (const auto& [key, value] : scheduler->pairs()) {
    if (!key.is(PickleKind::kString)) continue;
    const std::string name(key.text());
    if (value.is(PickleKind::kInt)) common[name] = value.integer();
    if (value.is(PickleKind::kFloat)) common[name] = value.real();
    if (value.is(PickleKind::kBool)) common[name] = value.boolean();
    if (value.is(PickleKind::kString)) common[name] = std::string(value.text());
  }
}

}  // namespace ms::convert
