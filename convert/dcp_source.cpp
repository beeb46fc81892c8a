#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "convert/dcp.h"
#include "convert/detail/printable.h"
#include "convert/hf_named.h"
#include "convert/mapped_source.h"
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
    embedding_ = cat(config_.family->prefix, embedding_name(*config_.family));
    find_optimizer();
    find_weights();
    if (options.drop_optimizer && optimizer_) {
      std::erase_if(tensors_.tables, [](const auto& table) { return table.first != TensorRole::kParam; });
      decisions_.push_back("optimizer state is left out");
    }
    say_what_is_skipped();
  }

  std::unique_ptr<ckpt::Source> source() && {
    ckpt::CheckpointInfo info;
    if (const auto step = optimizer_step(); step && tensors_.tables.size() > 1) {
      info.iteration = *step;
      info.common["step"] = *step;
      decisions_.push_back(cat("iteration ", *step, " is what the optimizer counts"));
    }
    return make_mapped_source(std::move(tensors_), config_, std::move(info));
  }

 private:
  const TensorFile& file() const { return *tensors_.files[0]; }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [key, index] : keys_) names.push_back(key);
    return names;
  }

  // Moments under "<what the program calls them>.<name of the weight>.exp_avg".
  void find_optimizer() {
    const std::string moment = cat(embedding_, kMoments[0].first);
    const auto prefixes = prefixes_before(names(), moment);
    if (prefixes.empty()) return;
    if (prefixes.size() > 1) {
      throw Error(ErrorCode::kCorruptData, cat(tensors_.where, ": ", moment, " is there several times: under ",
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

  void say_what_is_skipped() const {
    const size_t others = reader_->tensors().size() - used_.size() + reader_->objects().size();
    if (others == 0) return;
    std::string example;
    for (const auto& [name, payload] : reader_->objects()) example = example.empty() ? name : example;
    for (const auto& [name, tensor] : reader_->tensors()) {
      if (tensor.shape.empty() && example.empty()) example = name;
    }
    decisions_.push_back(cat(others, " entries that are neither weights nor moments are skipped",
                             example.empty() ? "" : cat(", as ", printable(example))));
  }

  // AdamW's own counter, a scalar of each parameter.
  std::optional<int64_t> optimizer_step() const {
    if (!optimizer_) return std::nullopt;
    for (const auto& [key, tensor] : reader_->tensors()) {
      if (without_wrappers(key) != cat(*optimizer_, embedding_, ".step") || tensor.chunks.size() != 1) continue;
      if (core::num_elements(tensor.shape) != 1) continue;
      const core::Dims first(tensor.shape.size(), 0);
      double step = -1;
      if (tensor.dtype == SafetensorsDType::kF32) {
        float value = 0;
        reader_->read(tensor, tensor.chunks[0], first, tensor.shape, reinterpret_cast<std::byte*>(&value));
        step = static_cast<double>(value);
      } else if (tensor.dtype == SafetensorsDType::kI64) {
        int64_t value = 0;
        reader_->read(tensor, tensor.chunks[0], first, tensor.shape, reinterpret_cast<std::byte*>(&value));
        step = static_cast<double>(value);
      }
      const bool is_count = step >= 0 && step < 9e15 && step == std::floor(step);
      return is_count ? std::optional(static_cast<int64_t>(step)) : std::nullopt;
    }
    return std::nullopt;
  }

  std::shared_ptr<const DcpReader> reader_;
  HfConfig config_;
  std::vector<std::string>& decisions_;
  NamedTensors tensors_;
  std::map<std::string, size_t> keys_;  // without wrappers: index in the file
  std::set<size_t> used_;
  std::string embedding_;
  std::optional<std::string> optimizer_;  // what stands before the names of weights in its keys
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
