#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "convert/dcp.h"
#include "convert/detail/printable.h"
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

constexpr std::string_view kWrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};
constexpr std::pair<std::string_view, TensorRole> kMoments[] = {{".exp_avg", TensorRole::kExpAvg},
                                                                {".exp_avg_sq", TensorRole::kExpAvgSq}};

std::string without_wrappers(std::string_view key) {
  std::string out(key);
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = out.find(wrapper); at != std::string::npos; at = out.find(wrapper, at)) {
      if (at == 0 || out[at - 1] == '.') {
        out.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  return out;
}

// What stands before `ending` in the keys that end in it, as a whole word.
std::vector<std::string> prefixes_of(const std::map<std::string, size_t>& keys, const std::string& ending) {
  std::vector<std::string> out;
  for (const auto& [key, index] : keys) {
    if (!key.ends_with(ending)) continue;
    const std::string prefix = key.substr(0, key.size() - ending.size());
    if (prefix.empty() || prefix.ends_with('.')) out.push_back(prefix);
  }
  return out;
}

class DcpCheckpoint {
 public:
  DcpCheckpoint(const std::string& folder, const DcpOptions& options, std::vector<std::string>& decisions)
      : reader_(std::make_shared<DcpReader>(folder)),
        config_(read_config(folder, options.hf_cfg_dir)),
        decisions_(decisions) {
    tensors_.where = folder;
    tensors_.files.push_back(open_dcp_tensors(reader_));
    for (size_t i = 0; i < file().size(); ++i) {
      const auto [at, is_new] = keys_.emplace(without_wrappers(file()[i].name), i);
      if (!is_new) throw Error(ErrorCode::kCorruptData, cat(folder, ": two tensors are ", printable(at->first)));
    }
    embedding_ = cat(config_.family->prefix, config_.family->before[0].hf);
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
  static HfConfig read_config(const std::string& folder, const std::string& asked) {
    const fs::path path = fs::path(asked.empty() ? folder : asked) / "config.json";
    if (asked.empty() && !fs::exists(path)) {
      throw Error(ErrorCode::kNotFound,
                  cat(folder,
                      ": DCP does not say what model it holds; give the folder of its config.json by "
                      "--hf-cfg-dir"));
    }
    return read_hf_config(asked.empty() ? path.string() : asked);
  }

  const TensorFile& file() const { return *tensors_.files[0]; }

  // Moments under "<what the program calls them>.<name of the weight>.exp_avg".
  void find_optimizer() {
    const auto prefixes = prefixes_of(keys_, cat(embedding_, kMoments[0].first));
    if (prefixes.empty()) return;
    if (prefixes.size() > 1) refuse_several(cat(embedding_, kMoments[0].first), prefixes);
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
    std::string name = embedding_;
    auto prefixes = prefixes_of(keys_, name);
    if (prefixes.empty() && config_.family->prefix_is_optional) {
      name = config_.family->before[0].hf;
      prefixes = prefixes_of(keys_, name);
    }
    if (prefixes.empty()) {
      throw Error(ErrorCode::kUnsupported,
                  cat(tensors_.where, ": no tensor is called ", embedding_, ", as in a ", config_.family->model_type,
                      " model of transformers; its ", keys_.size(), " tensors begin with ",
                      keys_.empty() ? std::string("none") : printable(keys_.begin()->first)));
    }
    if (prefixes.size() > 1) refuse_several(name, prefixes);
    for (const auto& [key, index] : keys_) {
      const bool of_optimizer = optimizer_ && key.starts_with(*optimizer_) && !optimizer_->empty();
      if (!key.starts_with(prefixes[0]) || of_optimizer || used_.contains(index)) continue;
      tensors_.tables[TensorRole::kParam].emplace(key.substr(prefixes[0].size()), NamedTensors::Place{0, index});
      used_.insert(index);
    }
  }

  [[noreturn]] void refuse_several(const std::string& name, const std::vector<std::string>& prefixes) const {
    throw Error(ErrorCode::kCorruptData, cat(tensors_.where, ": ", name, " is there several times: under ",
                                             printable(prefixes[0]), " and under ", printable(prefixes[1])));
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

std::unique_ptr<ckpt::Source> open_dcp(const std::string& folder, const DcpOptions& options,
                                       std::vector<std::string>& decisions) {
  return DcpCheckpoint(folder, options, decisions).source();
}

}  // namespace ms::convert
