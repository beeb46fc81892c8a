#include "convert/megatron/param_groups.h"

#include <algorithm>
#include <unordered_map>

#include "convert/torch/adam_state.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

using core::cat;

constexpr int kMaxDepth = 4;  // of nested optimizers

// An optimizer may contain another one, or several in a list or numbered dictionary.
void collect_groups(PickleValue optimizer, int depth, std::vector<PickleValue>& groups) {
  if (const auto found = optimizer.find("param_groups"); found && found->is(PickleKind::kList)) {
    for (const PickleValue group : found->items()) groups.push_back(group);
    return;
  }
  if (depth == kMaxDepth) return;
  if (const auto inner = optimizer.find("optimizer")) return collect_groups(*inner, depth + 1, groups);
  if (optimizer.is(PickleKind::kList)) {
    for (const PickleValue inner : optimizer.items()) collect_groups(inner, depth + 1, groups);
  } else if (optimizer.is(PickleKind::kDict)) {
    for (const auto& [key, inner] : optimizer.pairs()) {
      if (key.is(PickleKind::kInt)) collect_groups(inner, depth + 1, groups);
    }
  }
}

bool is_true(PickleValue group, const char* key) {
  const auto flag = group.find(key);
  return flag && flag->is(PickleKind::kBool) && flag->boolean();
}

// NeMo calls it pre_wd_mult.
std::optional<double> wd_mult_of(PickleValue group) {
  for (const char* key : {"wd_mult", "pre_wd_mult"}) {
    const auto value = group.find(key);
    if (value && (value->is(PickleKind::kFloat) || value->is(PickleKind::kInt))) return value->real();
  }
  return std::nullopt;
}

struct Kind {
  bool decays = true, expert = false, decoupled = false;
  bool operator==(const Kind&) const = default;
};

}  // namespace

void read_megatron_groups(PickleValue optimizer, std::span<const layout::ParameterSpec> specs, const GroupRule& rule,
                          nlohmann::json& common) {
  std::vector<PickleValue> stored;
  collect_groups(optimizer, 0, stored);
  if (stored.empty()) return;
  std::vector<ckpt::OptimizerGroup> groups;
  std::vector<Kind> kinds;
  bool experts = false, decoupled = false;
  for (const PickleValue group : stored) {
    ckpt::OptimizerGroup settings = read_adam_group(nullptr, group);
    if (!settings.wd_mult) settings.wd_mult = wd_mult_of(group);
    if (settings.wd_mult == 0.0) settings.weight_decay = 0.0;  // as the scheduler sets it before the first step
    settings.options.erase("bias_correction");                 // Megatron's name for what torch's Adam always does
    const Kind kind{settings.wd_mult != 0.0, is_true(group, "is_expert_parallel"), is_true(group, "is_decoupled_lr")};
    experts = experts || kind.expert;
    decoupled = decoupled || kind.decoupled;
    // Every rank and every chained optimizer repeats it.
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    groups.push_back(std::move(settings));
    kinds.push_back(kind);
  }
  if (specs.empty()) groups.resize(1);
  for (const layout::ParameterSpec& spec : specs) {
    if (spec.is_buffer) continue;
    const Kind wanted{is_decayed(spec, rule), experts && spec.expert >= 0, decoupled && is_embedding_or_output(spec)};
    const auto find = [&](const Kind& kind) { return std::find(kinds.begin(), kinds.end(), kind); };
    auto found = find(wanted);
    if (found == kinds.end()) found = find({wanted.decays, !wanted.expert, wanted.decoupled});
    if (found == kinds.end()) found = kinds.begin();
    groups[static_cast<size_t>(found - kinds.begin())].params.push_back(spec.key);
  }
  std::vector<ckpt::OptimizerGroup> made;  // groups of equal settings are merged, as experts' mostly are
  for (ckpt::OptimizerGroup& group : groups) {
    if (!specs.empty() && group.params.empty()) continue;
    const auto same =
        std::find_if(made.begin(), made.end(), [&](const auto& one) { return same_settings(one, group); });
    if (same == made.end()) {
      made.push_back(std::move(group));
    } else {
      same->params.insert(same->params.end(), group.params.begin(), group.params.end());
    }
  }
  set_optimizer_groups(common, std::move(made), /*complete=*/true);
}

MegatronGroups megatron_groups(std::span<const ckpt::OptimizerGroup> groups,
                               std::span<const layout::ParameterSpec> specs) {
  std::unordered_map<std::string_view, size_t> group_of_key;
  size_t rest = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].params.empty()) rest = g;
    for (const std::string& key : groups[g].params) group_of_key.emplace(key, g);
  }
  std::vector<std::vector<const layout::ParameterSpec*>> members[2] = {
      std::vector<std::vector<const layout::ParameterSpec*>>(groups.size()),
      std::vector<std::vector<const layout::ParameterSpec*>>(groups.size())};
  for (const layout::ParameterSpec& spec : specs) {
    if (spec.is_buffer) continue;
    const auto found = group_of_key.find(spec.key);
    members[is_decayed(spec, {}) ? 0 : 1][found == group_of_key.end() ? rest : found->second].push_back(&spec);
  }
  MegatronGroups made;
  const auto choose = [&](const auto& of_group, ckpt::OptimizerGroup& chosen, const char* what) {
    const auto most = std::max_element(of_group.begin(), of_group.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
    chosen = groups[static_cast<size_t>(most - of_group.begin())];
    chosen.params.clear();
    for (size_t g = 0; g < groups.size(); ++g) {
      ckpt::OptimizerGroup other = groups[g];
      other.wd_mult = chosen.wd_mult;
      if (of_group[g].empty() || same_settings(other, chosen)) continue;
      made.dropped.push_back(cat("Megatron has one group of ", what, ", which gets ", settings_text(chosen), "; ",
                                 of_group[g][0]->key,
                                 of_group[g].size() > 1 ? cat(" and ", of_group[g].size() - 1, " more have") : " has",
                                 " ", settings_text(groups[g]), " in the source, which is dropped"));
    }
  };
  choose(members[0], made.decayed, "matrices");
  choose(members[1], made.other, "vectors and biases");
  if (made.other.weight_decay.value_or(0) != 0) {
    made.dropped.push_back(cat("Megatron does not decay vectors and biases; the source does, by ",
                               *made.other.weight_decay, ", which is dropped"));
  }
  made.decayed.wd_mult = 1.0;
  made.other.wd_mult = 0.0;
  made.other.weight_decay = 0.0;
  return made;
}

}  // namespace ms::convert
