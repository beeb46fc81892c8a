#include "convert/rank_source.h"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/mapped_source.h"
#include "convert/named_source.h"
#include "convert/optimizer_groups.h"
#include "convert/passthrough.h"
#include "convert/torch/rank_files.h"
#include "convert/whole_tensors.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr std::string_view kState = "optim.state.", kStep = ".step";
constexpr double kMaxCount = 9e15;

class RankSource {
 public:
  RankSource(const std::string& folder, const HfNamedOptions& options, std::vector<std::string>& decisions)
      : folder_(folder), decisions_(decisions), config_(config_of_named(folder, options.hf_cfg_dir, "FSDP")) {
    NamedShards shards = read_rank_files(folder, options.drop_optimizer, decisions, &optimizer_);
    source_ = make_named_source(std::move(shards), {});
  }

  std::unique_ptr<ckpt::Source> open() && {
    const ckpt::ShardTable& shards = source_->shards();
    std::vector<std::string> names;  // of weights
    for (size_t t = 0; t < shards.num_tensors(); ++t) {
      const auto tensor = static_cast<int32_t>(t);
      if (shards.role(tensor) == TensorRole::kParam) names.push_back(without_wrappers(shards.key(tensor)));
    }
    config_.rename([&](std::string_view name) { return !prefixes_before(names, name).empty(); });
    prefix_ = prefix_of_family(names, *config_.family, folder_);
    NamedTensors tensors;
    tensors.where = folder_;
    tensors.passes_through = passthrough_rule("", config_.is_wrapper);
    for (size_t t = 0; t < shards.num_tensors(); ++t) add(static_cast<int32_t>(t), tensors);
    tensors.files.push_back(open_whole_tensors(source_, folder_));
    ckpt::CheckpointInfo info;
    if (tensors.tables.contains(TensorRole::kExpAvg)) {
      add_settings(info);
    } else if (!optimizer_.is_there) {
      decisions_.push_back(
          "there are no optim_world_size_* files: only weights are read, and the result has no optimizer state");
    }
    return make_mapped_source(std::move(tensors), config_, std::move(info));
  }

 private:
  std::string name_of(std::string_view key) const {
    std::string name = without_wrappers(key);
    return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
  }

  void add(int32_t tensor, NamedTensors& to) {
    const std::string_view key = source_->shards().key(tensor);
    const TensorRole role = source_->shards().role(tensor);
    if (role == TensorRole::kBuffer) return add_state(tensor, key);
    if (!to.tables[role].emplace(name_of(key), NamedTensors::Place{0, static_cast<size_t>(tensor)}).second) {
      throw Error(ErrorCode::kCorruptData, cat(folder_, ": two tensors are ", printable(name_of(key))));
    }
  }

  // Reads optimizer state that is not a moment of a named parameter.
  void add_state(int32_t tensor, std::string_view key) {
    const std::string_view rest = key.starts_with(kState) ? key.substr(kState.size()) : key;
    if (!rest.ends_with(kStep)) {
      throw Error(ErrorCode::kUnsupported,
                  cat(folder_, ": ", printable(key), " is optimizer state of an unknown parameter, or not Adam's; ",
                      "give --drop-optimizer to convert the weights alone"));
    }
    const auto step = read_scalar(tensor);
    if (!step || *step < 0 || *step > kMaxCount || *step != std::floor(*step)) return;
    steps_.emplace(name_of(rest.substr(0, rest.size() - kStep.size())), static_cast<int64_t>(*step));
  }

  std::optional<double> read_scalar(int32_t tensor) const {
    const ckpt::ShardTable& shards = source_->shards();
    if (shards.dtype(tensor) != core::DType::kFp32 || shards.tensor_bytes(tensor) != sizeof(float)) return std::nullopt;
    for (size_t s = 0; s < shards.size(); ++s) {
      if (shards.tensor_of(s) != tensor) continue;
      float value = 0;
      source_->read(static_cast<int32_t>(s), core::Dims(shards.axes(tensor), 0), shards.extents(s),
                    reinterpret_cast<std::byte*>(&value));
      return value;
    }
    return std::nullopt;
  }

  void add_settings(ckpt::CheckpointInfo& info) {
    for (NamedGroup& group : optimizer_.groups) {
      for (std::string& name : group.names) {
        name = name_of(name);
        const auto step = steps_.find(name);
        if (step == steps_.end()) continue;
        if (group.settings.step.value_or(step->second) != step->second) {
          throw Error(
              ErrorCode::kUnsupported,
              cat(folder_, ": ", printable(name), " has made ", step->second, " steps and others of its group ",
                  *group.settings.step,
                  "; all parameters of a group must have the same step. Give --drop-optimizer to convert the weights "
                  "alone"));
        }
        group.settings.step = step->second;
      }
    }
    add_named_groups(optimizer_.groups, *config_.family, config_.model, folder_, info.common);
    if (optimizer_.groups.empty()) {
      decisions_.push_back("the files have no param_groups: learning rate, betas and weight decay are unknown");
    }
    if (!optimizer_.scheduler.is_null()) {
      info.common["lr_scheduler"] = {{"key", "lr_scheduler"}, {"state", optimizer_.scheduler}};
    }
    if (steps_.empty()) return;
    info.iteration = steps_.begin()->second;
    info.common["step"] = info.iteration;
    decisions_.push_back(cat("iteration ", info.iteration, " is the optimizer's step"));
  }

  std::string folder_;
  std::vector<std::string>& decisions_;
  HfConfig config_;
  RankOptimizer optimizer_;
  std::shared_ptr<ckpt::Source> source_;
  std::string prefix_;                    // before the family's names
  std::map<std::string, int64_t> steps_;  // by the family's names
};

}  // namespace

std::unique_ptr<ckpt::Source> open_rank_files(const std::string& folder, const HfNamedOptions& options,
                                              std::vector<std::string>& decisions) {
  return RankSource(folder, options, decisions).open();
}

}  // namespace ms::convert
