#include "convert/passthrough.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "convert/detail/printable.h"
#include "convert/family.h"
#include "convert/huggingface.h"
#include "convert/huggingface_config.h"
#include "convert/named_source.h"
#include "convert/torch/state_dict.h"
#include "convert/torch/torch_writer.h"
#include "convert/wrapper.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using nlohmann::json;

constexpr const char *kTensors = "passthrough.pt", *kRest = "passthrough.json";
constexpr int64_t kMaxRestBytes = 64 << 20;
// Keys of model_extra that a Hugging Face target needs and Megatron's args cannot express.
constexpr const char* kExtras[] = {"family", "hf_config", "hf_generation_config", "wrapped", "name_map"};

bool passes(const core::ShardedTensor& shard) {
  return shard.role == TensorRole::kBuffer && !is_canonical_name(shard.key);
}

// Some shards of a source, followed by the passthrough tensors of another.
class ChangedSource final : public ckpt::Source {
 public:
  ChangedSource(std::unique_ptr<ckpt::Source> base, bool keeps_passthrough)
      : base_(std::move(base)), info_(base_->info()) {
    const ckpt::ShardTable& shards = base_->shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!keeps_passthrough && passes(shards[i])) continue;
      shards_.push_back(shards[i]);
      places_.emplace_back(base_.get(), static_cast<int32_t>(i));
    }
  }

  void add_passthrough_of(std::unique_ptr<ckpt::Source> other) {
    other_ = std::move(other);
    const ckpt::ShardTable& shards = other_->shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      if (!passes(shards[i])) continue;
      shards_.push_back(shards[i]);
      places_.emplace_back(other_.get(), static_cast<int32_t>(i));
    }
  }

  ckpt::CheckpointInfo& changed_info() { return info_; }
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }

  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const auto& [source, index] = places_[static_cast<size_t>(shard)];
    source->read(index, offset, extent, out);
  }
  void read_into(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                 const core::Dims& out_shape, const core::Dims& out_offset) override {
    const auto& [source, index] = places_[static_cast<size_t>(shard)];
    source->read_into(index, offset, extent, out, out_shape, out_offset);
  }
  bool expect_stream(int64_t cache_bytes, int threads) override { return base_->expect_stream(cache_bytes, threads); }
  void begin_one_pass() override { base_->begin_one_pass(); }
  void end_one_pass(bool all) override { base_->end_one_pass(all); }
  int64_t scratch_bytes() const override {
    return std::max(base_->scratch_bytes(), other_ == nullptr ? 0 : other_->scratch_bytes());
  }
  std::string describe(int32_t shard) const override {
    const auto& [source, index] = places_[static_cast<size_t>(shard)];
    return source->describe(index);
  }
  std::optional<uint64_t> logical_xxh3(const std::string& key, TensorRole role) const override {
    return base_->logical_xxh3(key, role);
  }

 private:
  std::unique_ptr<ckpt::Source> base_, other_;
  ckpt::CheckpointInfo info_;
  ckpt::ShardTable shards_;
  std::vector<std::pair<ckpt::Source*, int32_t>> places_;  // of shards_: a shard of base_ or other_
};

// passthrough.pt.
std::unique_ptr<ckpt::Source> open_passthrough_file(const std::string& path) {
  NamedShards shards;
  shards.where = path;
  add_whole_tensors(shards, open_state_dict(path), TensorRole::kBuffer);
  const TensorFile& file = *shards.files[0];
  for (size_t i = 0; i < file.size(); ++i) {
    const TensorFile::Tensor tensor = file[i];
    if (is_canonical_name(tensor.name) || !to_core_dtype(tensor.dtype)) {
      throw Error(ErrorCode::kUnsupported, cat(path, ": ", detail::printable(tensor.name), " (",
                                               safetensors_dtype_name(tensor.dtype), ") cannot be copied"));
    }
  }
  return make_named_source(std::move(shards), {});
}

}  // namespace

bool is_canonical_name(std::string_view name) {
  constexpr std::string_view kOurs[] = {"embedding.", "decoder.", "output_layer.", "mtp."};
  return std::any_of(std::begin(kOurs), std::end(kOurs), [&](std::string_view ours) { return name.starts_with(ours); });
}

std::function<bool(std::string_view name)> passthrough_rule(const std::string& pattern, bool of_wrapper) {
  std::optional<std::regex> asked;
  try {
    if (!pattern.empty()) asked.emplace(pattern);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("--passthrough ", detail::printable(pattern), ": not a regular expression: ", error.what()));
  }
  return [asked, of_wrapper](std::string_view name) {
    if (of_wrapper && is_wrapper_tensor(name)) return true;
    return asked && std::regex_search(name.begin(), name.end(), *asked);
  };
}

std::vector<core::ShardedTensor> passthrough_tensors(const ckpt::Source& source) {
  std::vector<core::ShardedTensor> tensors;
  std::set<std::string> seen;
  for (core::ShardedTensor shard : source.shards()) {
    if (!passes(shard) || !seen.insert(shard.key).second) continue;
    shard.global_offset = core::Dims(shard.global_shape.size(), 0);
    shard.local_shape = shard.global_shape;
    shard.replica_id = 0;
    tensors.push_back(std::move(shard));
  }
  return tensors;
}

std::unique_ptr<ckpt::Source> drop_passthrough(std::unique_ptr<ckpt::Source> source) {
  auto changed = std::make_unique<ChangedSource>(std::move(source), false);
  json& extra = changed->changed_info().model_extra;
  extra.erase("wrapped");
  const json whole = extra.value("hf_config", json());
  if (is_wrapper(whole)) {
    json text = text_config(whole, "the stored config.json");
    text["architectures"] = {find_family(text["model_type"].get<std::string>()).architecture};
    extra["hf_config"] = std::move(text);
  }
  return changed;
}

std::unique_ptr<ckpt::Source> with_passthrough_from(std::unique_ptr<ckpt::Source> source, const std::string& original) {
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, cat("--passthrough-from ", original, ": ", text));
  };
  if (const auto own = passthrough_tensors(*source); !own.empty()) {
    refuse(cat("the checkpoint contains such tensors itself (", own.front().key, ", ..); leave the flag out"));
  }
  auto folder = open_huggingface(original);
  if (passthrough_tensors(*folder).empty()) {
    refuse("every tensor in it belongs to the language model; give the folder of the whole model");
  }
  core::TransformerConfig wanted = folder->info().model;
  if (source->info().model.mtp_num_layers == 0) wanted.mtp_num_layers = 0;  // transformers drops such layers
  if (!same_model(wanted, source->info().model)) refuse("its language model differs from the checkpoint's");
  auto changed = std::make_unique<ChangedSource>(std::move(source), true);
  for (const char* key : kExtras) {
    const json& extra = folder->info().model_extra;
    if (extra.contains(key)) changed->changed_info().model_extra[key] = extra[key];
  }
  changed->add_passthrough_of(std::move(folder));
  return changed;
}

void add_passthrough_files(const ckpt::Source& source, ArchiveSinkOptions& sink, ckpt::ShardTable& targets) {
  const std::vector<core::ShardedTensor> tensors = passthrough_tensors(source);
  if (tensors.empty()) return;
  Archive archive;
  const auto file = static_cast<int32_t>(sink.files.size());
  for (const core::ShardedTensor& tensor : tensors) {
    sink.places.push_back({file, 0, static_cast<int32_t>(archive.storage_bytes.size()), 0, 0});
    archive.storage_bytes.push_back(core::num_elements(tensor.global_shape) * core::size_of(tensor.dtype));
    targets.push_back(tensor);
  }
  archive.pickle = [tensors] {
    return make_pickle([&](PickleWriter& pickle) {
      pickle.dict([&] {
        for (size_t i = 0; i < tensors.size(); ++i) {
          pickle.text(tensors[i].key);
          write_torch_tensor(pickle, {.dtype = from_core_dtype(tensors[i].dtype),
                                      .storage = i,
                                      .storage_elements = core::num_elements(tensors[i].global_shape),
                                      .shape = tensors[i].global_shape});
        }
      });
    });
  };
  sink.files.push_back({kTensors, {std::move(archive)}});
  json rest = json::object();
  for (const char* key : kExtras) {
    if (source.info().model_extra.contains(key)) rest[key] = source.info().model_extra[key];
  }
  sink.texts.emplace_back(kRest, [rest] { return hf_json_text(rest); });
}

std::unique_ptr<ckpt::Source> with_passthrough_files(std::unique_ptr<ckpt::Source> source, const std::string& folder) {
  const fs::path tensors = fs::path(folder) / kTensors, rest = fs::path(folder) / kRest;
  if (!fs::exists(tensors)) return source;
  auto changed = std::make_unique<ChangedSource>(std::move(source), true);
  changed->add_passthrough_of(open_passthrough_file(tensors.string()));
  const json extra = read_json(rest.string(), kMaxRestBytes);
  if (!extra.is_object()) throw Error(ErrorCode::kCorruptData, cat(rest.string(), ": expected a JSON object"));
  for (const char* key : kExtras) {
    if (extra.contains(key)) changed->changed_info().model_extra[key] = extra[key];
  }
  return changed;
}

}  // namespace ms::convert
