#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "convert/dcp.h"
#include "convert/dcp_optimizer.h"
#include "convert/detail/printable.h"
#include "convert/hf_named.h"
#include "convert/mapped_source.h"
#include "convert/name_map.h"
#include "convert/optimizer_groups.h"
#include "convert/passthrough.h"
#include "convert/torch/dcp_reader.h"
#include "convert/torch/dcp_tensors.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr std::pair<std::string_view, TensorRole> kMoments[] = {{".exp_avg", TensorRole::kExpAvg},
                                                                {".exp_avg_sq", TensorRole::kExpAvgSq}};

class DcpCheckpoint {
 public:
  DcpCheckpoint(const std::string& folder, const HfNamedOptions& options, std::vector<std::string>& decisions)
      : reader_(std::make_shared<DcpReader>(folder)),
        config_(config_of_named(folder, options.hf_cfg_dir, "DCP")),
        decisions_(decisions) {
    tensors_.where = folder;
    tensors_.files.push_back(open_dcp_tensors(reader_));
    for (size_t i = 0; i < file().size(); ++i) {
      const auto [at, is_new] = keys_.emplace(without_wrappers(file()[i].name), i);
      if (!is_new) throw Error(ErrorCode::kCorruptData, cat(folder, ": two tensors are ", printable(at->first)));
    }
    config_.rename([&](std::string_view name) { return !prefixes_before(names(), name).empty(); });
    tensors_.passes_through = passthrough_rule("", config_.is_wrapper);
    embedding_ = cat(config_.family->prefix, embedding_name(*config_.family));
    find_optimizer();
    find_weights();
    if (options.drop_optimizer && optimizer_) {
      std::erase_if(tensors_.tables, [](const auto& table) { return table.first != TensorRole::kParam; });
      decisions_.push_back("optimizer state is left out");
    } else if (optimizer_) {
      read_settings();
    }
    say_what_is_skipped();
  }

  std::unique_ptr<ckpt::Source> source() && {
    return make_mapped_source(std::move(tensors_), config_, std::move(info_));
  }

 private:
  const TensorFile& file() const { return *tensors_.files[0]; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [key, index] : keys_) names.push_back(key);
    return names;
  }

  // Moments are stored under "<name of the optimizer in the program>.<name of the weight>.exp_avg".
  void find_optimizer() {
    const std::string moment = cat(embedding_, kMoments[0].first);
    const auto prefixes = prefixes_before(names(), moment);
    if (prefixes.empty()) return;
    if (prefixes.size() > 1) {
      throw Error(ErrorCode::kCorruptData, cat(tensors_.where, ": ", moment, " occurs several times: under ",
                                               printable(prefixes[0]), " and under ", printable(prefixes[1])));
    }
    optimizer_ = prefixes[0];
    for (const auto& [key, index] : keys_) {
      if (!key.starts_with(*optimizer_)) continue;
      for (const auto& [ending, role] : kMoments) {
        if (!key.ends_with(ending)) continue;
        const size_t size = key.size() - optimizer_->size() - ending.size();
        tensors_.tables[role].emplace(key.substr(optimizer_->size(), size), NamedTensors::Place{0, index});
        used_.insert(index);
      }
    }
  }

  void find_weights() {
    const std::string prefix = prefix_of_family(names(), *config_.family, tensors_.where);
    for (const auto& [key, index] : keys_) {
      const bool of_optimizer = optimizer_ && key.starts_with(*optimizer_) && !optimizer_->empty();
      if (!key.starts_with(prefix) || of_optimizer || used_.contains(index)) continue;
      tensors_.tables[TensorRole::kParam].emplace(key.substr(prefix.size()), NamedTensors::Place{0, index});
      used_.insert(index);
    }
  }

  // Reads groups, steps and a scheduler.
  void read_settings() {
    std::vector<std::string> names;
    for_each_tensor(*config_.family, config_.model, [&](const MappedTensor& mapped) {
      for (const std::string& name : {mapped.name, mapped.also}) {
        if (!name.empty()) names.push_back(name);
      }
    });
    DcpOptimizer found = read_dcp_optimizer(*reader_, *optimizer_, names);
    add_named_groups(found.groups, *config_.family, config_.model, reader_->folder(), info_.common);
    if (found.groups.empty()) {
      decisions_.push_back("the checkpoint has no param_groups: learning rate, betas and weight decay are unknown");
    }
    if (auto scheduler = read_dcp_scheduler(*reader_, found.used, decisions_)) {
      info_.common["lr_scheduler"] = std::move(*scheduler);
    }
    others_used_ = std::move(found.used);
    if (const auto step = optimizer_step()) {
      info_.iteration = *step;
      info_.common["step"] = *step;
      decisions_.push_back(cat("iteration ", *step, " is the optimizer's step"));
    }
  }

  void say_what_is_skipped() const {
    size_t others = 0;
    std::string example;
    const auto look = [&](const std::string& name, bool is_used) {
      if (is_used || others_used_.contains(name)) return;
      if (++others == 1) example = name;
    };
    for (const auto& [name, payload] : reader_->objects()) look(name, false);
    for (const auto& [name, tensor] : reader_->tensors()) {
      const auto key = keys_.find(without_wrappers(name));
      look(name, key != keys_.end() && used_.contains(key->second));
    }
    if (others == 0) return;
    decisions_.push_back(cat(others,
                             " entries that are neither weights, moments nor the optimizer's settings are skipped",
                             ", as ", printable(example)));
  }

  // Returns AdamW's step counter of the embedding; every parameter has one.
  std::optional<int64_t> optimizer_step() const {
    for (const auto& [key, tensor] : reader_->tensors()) {
      if (without_wrappers(key) != cat(*optimizer_, embedding_, ".step")) continue;
      const auto step = read_dcp_scalar(*reader_, tensor);
      const bool is_count = step && *step >= 0 && *step < 9e15 && *step == std::floor(*step);
      return is_count ? std::optional(static_cast<int64_t>(*step)) : std::nullopt;
    }
    return std::nullopt;
  }

  std::shared_ptr<const DcpReader> reader_;
  HfConfig config_;
  std::vector<std::string>& decisions_;
  NamedTensors tensors_;
  std::map<std::string, size_t> keys_;  // name without wrappers -> index in the file
  std::set<size_t> used_;               // weights and moments
  std::set<std::string> others_used_;   // keys of settings
  ckpt::CheckpointInfo info_;
  std::string embedding_;
  std::optional<std::string> optimizer_;  // the prefix before the names of weights in its keys
};

}  // namespace

std::string dcp_sign(const std::string& folder) {
  const bool plain = is_dcp(folder) && !fs::exists(fs::path(folder) / "metadata.json");
  return plain ? ".metadata of PyTorch DCP" : "";
}

std::unique_ptr<ckpt::Source> open_dcp(const std::string& folder, const HfNamedOptions& options,
                                       std::vector<std::string>& decisions) {
  return DcpCheckpoint(folder, options, decisions).source();
}

}  // namespace ms::convert
