#include "convert/optimizer_groups.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "convert/detail/printable.h"
#include "core/error.h"
#include "core/io/json.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;

bool is_trained(const MappedTensor& mapped) { return !mapped.is_copy && mapped.role != core::TensorRole::kBuffer; }

void require_adam(const ckpt::OptimizerGroup& group, const std::string& where) {
  const auto amsgrad = group.options.find("amsgrad");
  if (amsgrad == group.options.end() || *amsgrad != true) return;
  throw Error(ErrorCode::kUnsupported,
              cat(where,
                  ": a group uses amsgrad, whose max_exp_avg_sq is not supported; give --drop-optimizer to convert "
                  "the weights alone"));
}

}  // namespace

std::string name_in_memory(const MappedTensor& mapped) { return mapped.also.empty() ? mapped.name : mapped.also; }

void add_named_groups(std::span<const NamedGroup> groups, const Family& family, const core::TransformerConfig& model,
                      const std::string& where, nlohmann::json& common) {
  std::map<std::string_view, size_t> group_of_name;
  for (size_t g = 0; g < groups.size(); ++g) {
    require_adam(groups[g].settings, where);
    for (const std::string& name : groups[g].names) {
      if (!group_of_name.emplace(name, g).second) {
        throw Error(ErrorCode::kCorruptData, cat(where, ": ", printable(name), " occurs twice in param_groups"));
      }
    }
  }
  struct Place {
    size_t group;
    std::string name;
  };
  std::map<std::string, Place> place_of_key;
  std::vector<ckpt::OptimizerGroup> made;
  for (const NamedGroup& group : groups) made.push_back(group.settings);
  bool complete = true;
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    if (!is_trained(mapped)) return;
    auto found = group_of_name.find(mapped.name);
    if (found == group_of_name.end() && !mapped.also.empty()) found = group_of_name.find(mapped.also);
    if (found == group_of_name.end()) {
      complete = false;
      return;
    }
    const auto [at, is_new] = place_of_key.emplace(mapped.key, Place{found->second, mapped.name});
    if (is_new) {
      made[found->second].params.push_back(mapped.key);
    } else if (!same_settings(groups[at->second.group].settings, groups[found->second].settings)) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where, ": ", printable(at->second.name), " (", settings_text(groups[at->second.group].settings),
                      ") and ", printable(mapped.name), " (", settings_text(groups[found->second].settings),
                      ") are in different param_groups, but are one canonical parameter, ", mapped.key,
                      "; give --drop-optimizer to convert the weights alone"));
    }
  });
  std::erase_if(made, [](const ckpt::OptimizerGroup& group) { return group.params.empty(); });
  set_optimizer_groups(common, std::move(made), complete);
}

std::vector<NamedGroup> named_groups(std::span<const ckpt::OptimizerGroup> groups, const Family& family,
                                     const core::TransformerConfig& model) {
  std::vector<NamedGroup> made;
  for (const ckpt::OptimizerGroup& group : groups) {
    made.push_back({group, {}});
    made.back().settings.params.clear();
  }
  // As ckpt::group_of, for many parameters.
  std::unordered_map<std::string_view, const ckpt::OptimizerGroup*> listed;
  const ckpt::OptimizerGroup* rest = nullptr;
  for (const ckpt::OptimizerGroup& group : groups) {
    if (group.params.empty()) rest = &group;
    for (const std::string& key : group.params) listed.emplace(key, &group);
  }
  std::map<std::string, const ckpt::OptimizerGroup*> group_of_name;
  for_each_tensor(family, model, [&](const MappedTensor& mapped) {
    if (!is_trained(mapped)) return;
    const auto found = listed.find(mapped.key);
    const ckpt::OptimizerGroup* group = found == listed.end() ? rest : found->second;
    if (group == nullptr) {
      throw Error(ErrorCode::kCorruptData,
                  cat(mapped.key, " is in no optimizer group; give --drop-optimizer to leave out optimizer state"));
    }
    const std::string name = name_in_memory(mapped);
    const auto [at, is_new] = group_of_name.emplace(name, group);
    if (is_new) {
      made[static_cast<size_t>(group - groups.data())].names.push_back(name);
    } else if (!same_settings(*at->second, *group)) {
      throw Error(ErrorCode::kUnsupported,
                  cat("experts of ", name, " are in groups with different settings (", settings_text(*at->second), "; ",
                      settings_text(*group), "), but are one tensor in the target; give --drop-optimizer"));
    }
  });
  std::erase_if(made, [](const NamedGroup& group) { return group.names.empty(); });
  return made;
}

}  // namespace ms::convert
