#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "ckpt/layout.h"
#include "ckpt/plan.h"
#include "convert/detail/printable.h"
#include "convert/megatron/args.h"
#include "convert/megatron/dist_keys.h"
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

constexpr std::string_view kOptimizer = "optimizer.", kState = "optimizer.state.",
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
    if (pipeline_extras(args).any()) {
      throw Error(ErrorCode::kUnsupported, cat(args.where(),
                                               ": args.noop_layers or args.schedules_method is set: such "
                                               "torch_dist checkpoints are not supported, trees are"));
    }
    info_.model = megatron_model(args);
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
    for (const int64_t stacked : {place.expert, place.layer}) {
      if (stacked < 0) continue;
      at.insert(at.begin(), stacked);
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
    int64_t layer = -1, expert = -1;  // of stacks of such: which of the chunk's
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
    const StoredDistKey key = parse_dist_key(name->key);
    const core::TransformerConfig& model = info_.model;
    const size_t axes = key.axes();
    if (tensor.shape.size() < axes || (key.stacks_layers && tensor.shape[0] != model.num_layers) ||
        (key.stacks_experts && tensor.shape[axes - 1] != model.num_experts)) {
      throw Error(ErrorCode::kCorruptData,
                  cat(where(stored, tensor), ": shape ", tensor.shape, ", but args say ", model.num_layers, " layers",
                      key.stacks_experts ? cat(" of ", model.num_experts, " experts") : ""));
    }
    const auto dtype = to_core_dtype(tensor.dtype);
    if (!dtype) {
      throw Error(ErrorCode::kUnsupported, cat(where(stored, tensor), ": ", safetensors_dtype_name(tensor.dtype),
                                               ", which no parameter may be"));
    }
    const int64_t layers = key.stacks_layers ? model.num_layers : 1,
                  experts = key.stacks_experts ? model.num_experts : 1;
    std::vector<const ckpt::ParameterSpec*> parameters;
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t expert = 0; expert < experts; ++expert) {
        parameters.push_back(&parameter_of(stored, tensor, key, layer, expert));
        seen_.emplace(role_of(*parameters.back(), name->role), parameters.back()->key);
      }
    }
    for (const DcpReader::Chunk& chunk : tensor.chunks) {
      const auto range = [&](bool stacks, size_t axis) {
        return stacks ? std::pair(chunk.offset[axis], chunk.offset[axis] + chunk.extent[axis])
                      : std::pair<int64_t, int64_t>(0, 1);
      };
      const auto [first_layer, behind_layers] = range(key.stacks_layers, 0);
      const auto [first_expert, behind_experts] = range(key.stacks_experts, axes - 1);
      for (int64_t layer = first_layer; layer < behind_layers; ++layer) {
        for (int64_t expert = first_expert; expert < behind_experts; ++expert) {
          const ckpt::ParameterSpec& spec = *parameters[static_cast<size_t>(layer * experts + expert)];
          core::Dims offset = without_first(chunk.offset, axes), extent = without_first(chunk.extent, axes);
          if (key.half > 0) offset[0] += spec.global_shape[0] / 2;
          if (spec.rule == ckpt::TpRule::kVocabRows) extent[0] = std::min(extent[0], spec.global_shape[0] - offset[0]);
          if (!extent.empty() && extent[0] <= 0) continue;  // padding only
          shards_.push_back(
              {spec.key, role_of(spec, name->role), *dtype, spec.global_shape, offset, std::move(extent)});
          placements_.push_back({&stored, &tensor, &chunk, key.stacks_layers ? layer - first_layer : -1,
                                 key.stacks_experts ? expert - first_expert : -1});
        }
      }
    }
  }

  static TensorRole role_of(const ckpt::ParameterSpec& spec, TensorRole stored) {
    return spec.is_buffer ? TensorRole::kBuffer : stored;
  }

  // What a stored tensor has at a place of its stacks.
  const ckpt::ParameterSpec& parameter_of(const std::string& stored, const DcpReader::Tensor& tensor,
                                          const StoredDistKey& key, int64_t layer, int64_t expert) const {
    const std::string canonical = key.canonical(layer, expert);
    auto found = specs_.find(canonical);
    if (found == specs_.end()) found = specs_.find(key_of_model_with_experts(canonical));
    if (found == specs_.end() || (found->second.is_buffer && stored.starts_with(kOptimizer))) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where(stored, tensor), ": belongs to no part of the model that args describe"));
    }
    const ckpt::ParameterSpec& spec = found->second;
    core::Dims shape = without_first(tensor.shape, key.axes());
    if (spec.rule == ckpt::TpRule::kVocabRows && !shape.empty() && shape[0] == padded_rows_)
      shape[0] = spec.global_shape[0];
    if (key.half >= 0 && spec.rule == ckpt::TpRule::kGatedRows && !shape.empty()) shape[0] *= 2;
    if (shape != spec.global_shape) {
      throw Error(ErrorCode::kCorruptData,
                  cat(where(stored, tensor), ": shape ", tensor.shape, ", but args say ", spec.global_shape,
                      key.axes() == 0      ? ""
                      : key.stacks_experts ? " for each expert"
                                           : " for each layer",
                      key.half >= 0 ? ", of both halves" : ""));
    }
    return spec;
  }

  std::string where(const std::string& stored, const DcpReader::Tensor& tensor) const {
    return tensor.chunks.empty() ? printable(stored)
                                 : cat(reader_.describe(tensor.chunks[0].payload), ": tensor ", printable(stored));
  }

  // All parameters, in every role that there is, whole.
  void check_all_there() const {
    std::set<TensorRole> roles = {TensorRole::kParam, TensorRole::kBuffer};
    for (const auto& [role, key] : seen_) roles.insert(role);
    for (const TensorRole role : roles) {
      for (const auto& [key, spec] : specs_) {
        if (!ckpt::has_role(spec, role) || seen_.contains({role, key})) continue;
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
