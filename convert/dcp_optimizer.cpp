#include "convert/dcp_optimizer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "convert/detail/printable.h"
#include "convert/hf_named.h"
#include "convert/torch/adam_state.h"
#include "convert/torch/plain_value.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using detail::printable;
using nlohmann::json;

constexpr std::string_view kState = "state.", kGroups = "param_groups.";
constexpr double kMaxCount = 9e15;

// "optim.state.": the groups have the prefix "optim.param_groups.", and parameter names no further prefix.
struct Place {
  std::string groups, prefix;
};
Place place_of(std::string_view optimizer) {
  const size_t state = optimizer.rfind(kState);
  if (state == std::string_view::npos) return {cat(optimizer, kGroups), ""};
  return {cat(optimizer.substr(0, state), kGroups), std::string(optimizer.substr(state + kState.size()))};
}

class OptimizerReader {
 public:
  OptimizerReader(const DcpReader& reader, std::string_view optimizer, std::span<const std::string> names)
      : reader_(reader), optimizer_(optimizer), place_(place_of(optimizer)), names_(names) {}

  DcpOptimizer read() && {
    read_by_position();
    if (found_.groups.empty()) read_by_name();
    read_steps();
    return std::move(found_);
  }

 private:
  // Reads a member of a group, stored under this key as an object or a scalar tensor.
  void read_member(const std::string& key, std::string_view member, ckpt::OptimizerGroup& group) {
    if (const auto object = reader_.objects().find(key); object != reader_.objects().end()) {
      const TorchFile file = reader_.open_object(object->second);
      read_group_member(&file, member, file.root(), group);
    } else if (const auto tensor = reader_.tensors().find(key); tensor != reader_.tensors().end()) {
      const auto value = read_dcp_scalar(reader_, tensor->second);
      if (value && member == "lr") group.lr = value;
      if (value && member == "initial_lr") group.initial_lr = value;
      if (value && member == "weight_decay") group.weight_decay = value;
    }
    found_.used.insert(key);
  }

  // Calls visit(key, rest) for the entries of param_groups.
  void for_each_entry(const auto& visit) const {
    const auto all = [&](const auto& entries) {
      for (auto at = entries.lower_bound(place_.groups); at != entries.end() && at->first.starts_with(place_.groups);
           ++at)
        visit(at->first, std::string_view(at->first).substr(place_.groups.size()));
    };
    all(reader_.objects());
    all(reader_.tensors());
  }

  void read_by_position() {
    std::map<uint32_t, NamedGroup> groups;
    for_each_entry([&](const std::string& key, std::string_view rest) {
      uint32_t index = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
      const auto digits = static_cast<size_t>(end - rest.data());
      if (error != std::errc() || digits + 1 >= rest.size() || rest[digits] != '.') return;
      const std::string_view member = rest.substr(digits + 1);
      if (member.find('.') != std::string_view::npos) return;
      if (member == "params") {
        read_names(key, groups[index]);
      } else {
        read_member(key, member, groups[index].settings);
      }
    });
    for (auto& [index, group] : groups) found_.groups.push_back(std::move(group));
    if (groups.empty()) return;
    // Duplicates of the groups by position.
    for_each_entry([&](const std::string& key, std::string_view) { found_.used.insert(key); });
  }

  void read_names(const std::string& key, NamedGroup& group) {
    const auto object = reader_.objects().find(key);
    if (object == reader_.objects().end()) return;
    found_.used.insert(key);
    const TorchFile file = reader_.open_object(object->second);
    const PickleValue list = file.root();
    if (!list.is(PickleKind::kList) && !list.is(PickleKind::kTuple)) return;
    for (const PickleValue item : list.items()) {
      if (!item.is(PickleKind::kString)) {
        throw Error(ErrorCode::kUnsupported,
                    cat(reader_.describe(object->second), ": ", printable(key),
                        " identifies parameters by number, not by name; save what get_state_dict or "
                        "get_optimizer_state_dict returns, or give --drop-optimizer"));
      }
      group.names.push_back(without_prefix(without_wrappers(item.text())));
    }
  }

  void read_by_name() {
    std::map<std::string, std::vector<std::pair<std::string, std::string>>> members;  // (member, key) per parameter
    for_each_entry([&](const std::string& key, std::string_view rest) {
      const size_t dot = rest.rfind('.');
      if (dot == std::string_view::npos) return;
      members[without_prefix(without_wrappers(rest.substr(0, dot)))].emplace_back(rest.substr(dot + 1), key);
    });
    for (const std::string& name : names_) {
      const auto found = members.find(name);
      if (found == members.end()) continue;
      ckpt::OptimizerGroup settings;
      for (const auto& [member, key] : found->second) read_member(key, member, settings);
      const auto same = std::find_if(found_.groups.begin(), found_.groups.end(),
                                     [&](const NamedGroup& group) { return same_settings(group.settings, settings); });
      if (same == found_.groups.end()) {
        found_.groups.push_back({std::move(settings), {name}});
      } else {
        same->names.push_back(name);
      }
    }
  }

  // Reads AdamW's step counter, one scalar per parameter.
  void read_steps() {
    std::map<std::string, double, std::less<>> steps;
    for (const auto& [key, tensor] : reader_.tensors()) {
      const std::string bare = without_wrappers(key);
      if (!bare.starts_with(optimizer_) || !bare.ends_with(".step")) continue;
      const auto value = read_dcp_scalar(reader_, tensor);
      if (!value || *value < 0 || *value > kMaxCount || *value != std::floor(*value)) continue;
      found_.used.insert(key);
      steps[bare.substr(optimizer_.size(), bare.size() - optimizer_.size() - 5)] = *value;
    }
    for (NamedGroup& group : found_.groups) {
      std::optional<std::pair<std::string, double>> first;
      for (const std::string& name : group.names) {
        const auto found = steps.find(name);
        if (found == steps.end()) continue;
        if (!first) first = *found;
        if (first->second == found->second) continue;
        throw Error(ErrorCode::kUnsupported,
                    cat(reader_.folder(), ": ", printable(first->first), " has made ", first->second, " steps and ",
                        printable(name), ", of the same group, ", found->second,
                        "; all parameters of a group must have the same step. Give --drop-optimizer to convert the "
                        "weights alone"));
      }
      if (first) group.settings.step = static_cast<int64_t>(first->second);
    }
  }

  std::string without_prefix(std::string name) const {
    return name.starts_with(place_.prefix) ? name.substr(place_.prefix.size()) : name;
  }

  const DcpReader& reader_;
  std::string optimizer_;
  Place place_;
  std::span<const std::string> names_;
  DcpOptimizer found_;
};

}  // namespace

std::optional<double> read_dcp_scalar(const DcpReader& reader, const DcpReader::Tensor& tensor) {
  if (tensor.chunks.size() != 1 || core::num_elements(tensor.shape) != 1) return std::nullopt;
  const core::Dims first(tensor.shape.size(), 0);
  const auto read = [&](auto value) {
    reader.read(tensor, tensor.chunks[0], first, tensor.shape, reinterpret_cast<std::byte*>(&value));
    return static_cast<double>(value);
  };
  if (tensor.dtype == SafetensorsDType::kF32) return read(0.0F);
  if (tensor.dtype == SafetensorsDType::kF64) return read(0.0);
  if (tensor.dtype == SafetensorsDType::kI64) return read(int64_t{0});
  return std::nullopt;
}

DcpOptimizer read_dcp_optimizer(const DcpReader& reader, std::string_view optimizer,
                                std::span<const std::string> names) {
  return OptimizerReader(reader, optimizer, names).read();
}

std::optional<json> read_dcp_scheduler(const DcpReader& reader, std::set<std::string>& used,
                                       std::vector<std::string>& decisions) {
  constexpr std::string_view kSign = ".last_epoch";  // every LRScheduler has it, and _last_lr
  for (const auto& [sign, payload] : reader.objects()) {
    if (!sign.ends_with(kSign)) continue;
    const std::string key = sign.substr(0, sign.size() - kSign.size()), begin = key + ".";
    if (!reader.objects().contains(cat(begin, "_last_lr"))) continue;
    json state = json::object();
    std::vector<std::string> read;
    for (auto at = reader.objects().lower_bound(begin); at != reader.objects().end() && at->first.starts_with(begin);
         ++at) {
      const TorchFile file = reader.open_object(at->second);
      auto value = plain_value(file.root());
      if (!value || at->first.find('.', begin.size()) != std::string::npos) {
        decisions.push_back(
            cat("the scheduler ", printable(key), " is not copied: ", printable(at->first), " is not a plain value"));
        return std::nullopt;
      }
      state[at->first.substr(begin.size())] = std::move(*value);
      read.push_back(at->first);
    }
    used.insert(read.begin(), read.end());
    return json{{"key", key}, {"state", std::move(state)}};
  }
  return std::nullopt;
}

}  // namespace ms::convert
