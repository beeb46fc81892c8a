#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "ckpt/layout.h"
#include "ckpt/plan.h"
#include "convert/detail/printable.h"
#include "convert/megatron/args.h"
#include "convert/megatron/iterations.h"
#include "convert/megatron/progress.h"
#include "convert/megatron_dist.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr std::string_view kLayers = "decoder.layers.", kOptimizer = "optimizer.", kState = "optimizer.state.",
                           kDistributedMaster = "optimizer.state.param.";

struct Name {
  std::string key;  // without what tells the role
  TensorRole role = TensorRole::kParam;
};

// Nothing for optimizer state that is not kept by parameter.
std::optional<Name> parse_name(std::string_view key) {
  if (!key.starts_with(kOptimizer)) return Name{std::string(key), TensorRole::kParam};
  constexpr std::pair<std::string_view, TensorRole> kKinds[] = {{"param.", TensorRole::kMaster},
                                                                {"fp32_param.", TensorRole::kMaster},
                                                                {"exp_avg.", TensorRole::kExpAvg},
                                                                {"exp_avg_sq.", TensorRole::kExpAvgSq}};
  for (const auto& [kind, role] : kKinds) {
    const std::string prefix = cat(kState, kind);
    if (key.starts_with(prefix)) return Name{std::string(key.substr(prefix.size())), role};
  }
  return std::nullopt;
}

core::Dims without_first(const core::Dims& dims, size_t axes) {
  return core::Dims(dims.begin() + static_cast<std::ptrdiff_t>(axes), dims.end());
}

// Written last, so that it says that all is there.
constexpr const char* kCommitMark = "metadata.json";

bool is_whole(const fs::path& folder) { return is_dcp(folder.string()) && fs::exists(folder / kCommitMark); }

fs::path choose_folder(const std::string& path) {
  if (is_dcp(path)) {
    if (is_whole(path)) return path;
    throw Error(ErrorCode::kCorruptData, cat(path, ": no ", kCommitMark, ", which Megatron writes when all is there"));
  }
  const fs::path chosen = choose_megatron_iteration(path, is_whole);
  if (is_whole(chosen)) return chosen;
  const auto whole = megatron_iterations(path, is_whole);
  throw Error(ErrorCode::kCorruptData,
              cat(chosen.string(), ": named by ", kMegatronTracker, ", but not whole: expected .metadata and ",
                  kCommitMark, whole.empty() ? "" : cat("; the newest that is: ", whole[0].string())));
}

class DistSource final : public ckpt::Source {
 public:
  DistSource(const std::string& path, const MegatronOptions& options, std::vector<std::string>& decisions)
      : reader_(choose_folder(path).string()) {
    const TorchFile common = open_common(reader_.folder());
    const MegatronArgs args = common_args(common);
    info_.model = megatron_model(args);
    require_dense_model(info_.model, args.where(), "such torch_dist checkpoints are not read yet");
    set_vocabulary(args, options, decisions);
    for (ckpt::ParameterSpec& spec : ckpt::parameter_specs(info_.model)) {
      const std::string key = spec.key;
      specs_.emplace(key, std::move(spec));
    }
    // The distributed optimizer's masters of an fp32 model are its weights.
    const bool all_fp32 = std::all_of(reader_.tensors().begin(), reader_.tensors().end(), [](const auto& entry) {
      return entry.first.starts_with(kOptimizer) || entry.second.dtype == SafetensorsDType::kF32;
    });
    bool dropped = false, same = false;
    for (const auto& [key, tensor] : reader_.tensors()) {
      const bool drop = options.drop_optimizer && key.starts_with(kOptimizer);
      const bool is_weight = all_fp32 && key.starts_with(kDistributedMaster);
      if (!drop && !is_weight) add_tensor(key, tensor);
      dropped = dropped || drop;
      same = same || (is_weight && !drop);
    }
    if (dropped) decisions.push_back("optimizer state is left out");
    if (same) decisions.push_back("master weights of fp32 weights are these themselves, and left out");
    check_all_there();
    note_objects(decisions);
    add_megatron_progress(common.root(), args, info_);
  }

  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return shards_; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    core::Dims at = offset, size = extent;
    if (place.layer >= 0) {
      at.insert(at.begin(), place.layer);
      size.insert(size.begin(), 1);
    }
    reader_.read(*place.tensor, *place.chunk, at, size, out);
  }
  std::string describe(int32_t shard) const override {
    const Placement& place = placements_.at(static_cast<size_t>(shard));
    return cat(reader_.describe(place.chunk->payload), ": ", printable(*place.key));
  }

 private:
  struct Placement {
    const std::string* key = nullptr;  // in the checkpoint
    const DcpReader::Tensor* tensor = nullptr;
    const DcpReader::Chunk* chunk = nullptr;
    int64_t layer = -1;  // of a stack of layers: which of the chunk's
  };

  // What is not sharded: a file of its own, or an object beside the tensors.
  TorchFile open_common(const std::string& path) const {
    const fs::path file = fs::path(path) / "common.pt";
    if (fs::exists(file)) return TorchFile(file.string());
    for (const auto& [key, payload] : reader_.objects()) {
      if (key.starts_with("common_state/")) return reader_.open_object(payload);
    }
    throw Error(ErrorCode::kUnsupported,
                cat(path,
                    ": neither common.pt nor an object common_state: a DCP checkpoint, but none of Megatron's: "
                    "nothing in it says what the model is"));
  }

  static MegatronArgs common_args(const TorchFile& common) {
    if (const auto args = common.root().find("args")) return MegatronArgs(*args, common.where());
    throw Error(ErrorCode::kUnsupported, cat(common.where(), ": no args: nothing says what the model is"));
  }

  void set_vocabulary(const MegatronArgs& args, const MegatronOptions& options, std::vector<std::string>& decisions) {
    const auto embedding = reader_.tensors().find("embedding.word_embeddings.weight");
    if (embedding == reader_.tensors().end() || embedding->second.shape.empty()) {
      throw Error(ErrorCode::kCorruptData, cat(args.where(), ": no embedding.word_embeddings.weight beside it"));
    }
    padded_rows_ = embedding->second.shape[0];
    const int64_t rows =
        true_vocab_size(args, options.true_vocab_size, padded_rows_, args.size("tensor_model_parallel_size"));
    info_.model.vocab_size = rows;
    if (rows < padded_rows_) {
      decisions.push_back(cat("the last ", padded_rows_ - rows, " of ", padded_rows_,
                              " rows of the vocabulary are padding, and left out"));
    }
  }

  void add_tensor(const std::string& stored, const DcpReader::Tensor& tensor) {
    const std::optional<Name> name = parse_name(stored);
    if (!name) {
      throw Error(ErrorCode::kUnsupported, cat(where(stored, tensor),
                                               ": optimizer state that is not kept by parameter is not supported yet; "
                                               "Megatron's --dist-ckpt-optim-fully-reshardable keeps it so, and "
                                               "--drop-optimizer leaves it out"));
    }
    const std::string_view key = name->key;
    const bool stacked = key.starts_with(kLayers) && key.size() > kLayers.size() &&
                         (key[kLayers.size()] < '0' || key[kLayers.size()] > '9');
    if (!stacked) return add_parameter(stored, tensor, name->key, name->role, -1);
    if (tensor.shape.empty() || tensor.shape[0] != info_.model.num_layers) {
      throw Error(ErrorCode::kCorruptData, cat(where(stored, tensor), ": shape ", tensor.shape, ", but args say ",
                                               info_.model.num_layers, " layers"));
    }
    for (int64_t layer = 0; layer < tensor.shape[0]; ++layer) {
      add_parameter(stored, tensor, cat(kLayers, layer, ".", key.substr(kLayers.size())), name->role, layer);
    }
  }

  // layer: an index along the first axis of a stack; -1: the tensor is the parameter.
  void add_parameter(const std::string& stored, const DcpReader::Tensor& tensor, const std::string& key,
                     TensorRole role, int64_t layer) {
    const auto found = specs_.find(key);
    if (found == specs_.end()) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where(stored, tensor), ": belongs to no part of the model that args describe"));
    }
    const ckpt::ParameterSpec& spec = found->second;
    const size_t skipped = layer < 0 ? 0 : 1;
    core::Dims shape = without_first(tensor.shape, skipped);
    const bool padded = spec.rule == ckpt::TpRule::kVocabRows && !shape.empty() && shape[0] == padded_rows_;
    if (padded) shape[0] = spec.global_shape[0];
    if (shape != spec.global_shape) {
      throw Error(ErrorCode::kCorruptData, cat(where(stored, tensor), ": shape ", tensor.shape, ", but args say ",
                                               spec.global_shape, layer < 0 ? "" : " for each layer"));
    }
    const auto dtype = to_core_dtype(tensor.dtype);
    if (!dtype) {
      throw Error(ErrorCode::kUnsupported, cat(where(stored, tensor), ": ", safetensors_dtype_name(tensor.dtype),
                                               ", which no parameter may be"));
    }
    seen_.emplace(role, key);
    for (const DcpReader::Chunk& chunk : tensor.chunks) {
      if (layer >= 0 && (layer < chunk.offset[0] || layer >= chunk.offset[0] + chunk.extent[0])) continue;
      const core::Dims offset = without_first(chunk.offset, skipped);
      core::Dims extent = without_first(chunk.extent, skipped);
      if (padded) extent[0] = std::min(extent[0], shape[0] - offset[0]);
      if (padded && extent[0] <= 0) continue;
      shards_.push_back({key, role, *dtype, shape, offset, std::move(extent)});
      placements_.push_back({&stored, &tensor, &chunk, layer < 0 ? -1 : layer - chunk.offset[0]});
    }
  }

  std::string where(const std::string& stored, const DcpReader::Tensor& tensor) const {
    return tensor.chunks.empty() ? printable(stored)
                                 : cat(reader_.describe(tensor.chunks[0].payload), ": tensor ", printable(stored));
  }

  // All parameters, in every role that there is, whole.
  void check_all_there() const {
    std::set<TensorRole> roles = {TensorRole::kParam};
    for (const auto& [role, key] : seen_) roles.insert(role);
    for (const TensorRole role : roles) {
      for (const auto& [key, spec] : specs_) {
        if (seen_.contains({role, key})) continue;
        throw Error(ErrorCode::kCorruptData,
                    cat(reader_.folder(), ": no ", core::role_name(role), " of ", key, ", for which args ask"));
      }
    }
    for (const std::string& finding : ckpt::check_coverage(shards_, 1)) {
      throw Error(ErrorCode::kCorruptData, cat(reader_.folder(), ": ", finding));
    }
  }

  void note_objects(std::vector<std::string>& decisions) const {
    std::set<std::string> left_out;
    for (const auto& [key, payload] : reader_.objects()) {
      std::string name = key.substr(0, key.find("/shard_"));
      if (name.ends_with("._extra_state")) name = "_extra_state";
      if (name != "common_state") left_out.insert(std::move(name));
    }
    for (const std::string& name : left_out) decisions.push_back(cat(printable(name), " is no tensor, and left out"));
  }

  DcpReader reader_;
  ckpt::CheckpointInfo info_;
  std::map<std::string, ckpt::ParameterSpec> specs_;  // by key
  int64_t padded_rows_ = 0;                           // of the vocabulary
  std::set<std::pair<TensorRole, std::string>> seen_;
  ckpt::ShardTable shards_;
  std::vector<Placement> placements_;  // of shards_
};

}  // namespace

std::string megatron_dist_sign(const std::string& folder) {
  if (is_whole(folder)) return cat(".metadata and ", kCommitMark);
  const auto whole = megatron_iterations(folder, is_whole);
  return whole.empty() ? "" : cat(whole[0].filename().string(), "/.metadata and ", kCommitMark);
}

std::unique_ptr<ckpt::Source> open_megatron_dist(const std::string& path, const MegatronOptions& options,
                                                 std::vector<std::string>& decisions) {
  return std::make_unique<DistSource>(path, options, decisions);
}

}  // namespace ms::convert
