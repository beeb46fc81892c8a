#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "ckpt/copy_box.h"
#include "ckpt/optimizer_settings.h"
#include "ckpt/plan.h"
#include "convert/detail/dense_box.h"
#include "convert/detail/printable.h"
#include "convert/megatron/args.h"
#include "convert/megatron/dist_buckets.h"
#include "convert/megatron/dist_keys.h"
#include "convert/megatron/iterations.h"
#include "convert/megatron/master_weights.h"
#include "convert/megatron/progress.h"
#include "convert/megatron_dist.h"
#include "convert/passthrough.h"
#include "convert/torch/adam_state.h"
#include "convert/torch/dcp_reader.h"
#include "core/error.h"
#include "core/io/bulk_reader.h"
#include "core/layout/box.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Error;
using core::ErrorCode;
using core::TensorRole;
using detail::printable;

constexpr int64_t kProofElements = 4096;  // at each end of a shard
constexpr std::string_view kOptimizer = "optimizer.", kState = "optimizer.state.", kChained = "chained_",
                           kDistributedMaster = "optimizer.state.param.", kFlatMaster = "optimizer.state.fp32_param.";

struct Name {
  std::string key;  // without the part that names the role
  TensorRole role = TensorRole::kParam;
};

// Removes the number that optimizer keys have if experts have their own optimizer.
std::string_view without_chain(std::string_view key) {
  const size_t dot = key.find('.');
  const bool chained = key.starts_with(kChained) && dot != std::string_view::npos;
  return chained && key.substr(dot + 1).starts_with(kOptimizer) ? key.substr(dot + 1) : key;
}
bool is_optimizer_key(std::string_view key) { return without_chain(key).starts_with(kOptimizer); }

// Returns nullopt for optimizer state that is not stored by parameter.
std::optional<Name> parse_name(std::string_view stored) {
  const std::string_view key = without_chain(stored);
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

// Megatron writes it last: its presence means that the checkpoint is complete.
constexpr const char* kCommitMark = "metadata.json";

bool is_whole(const fs::path& folder) { return is_dcp(folder.string()) && fs::exists(folder / kCommitMark); }

fs::path choose_folder(const std::string& path) {
  if (is_dcp(path)) {
    if (is_whole(path)) return path;
    throw Error(ErrorCode::kCorruptData,
                cat(path, ": no ", kCommitMark, ", which Megatron writes last: the save is incomplete"));
  }
  fs::path chosen = choose_megatron_iteration(path, is_whole);
  if (is_whole(chosen)) return chosen;
  const auto whole = megatron_iterations(path, is_whole);
  throw Error(ErrorCode::kCorruptData,
              cat(chosen.string(), ": named by ", kMegatronTracker, ", but incomplete: expected .metadata and ",
                  kCommitMark, whole.empty() ? "" : cat("; the newest complete one: ", whole[0].string())));
}

// The parallel sizes of the run that saved, if args have them. The files do not depend on them.
nlohmann::json layout_of_args(const MegatronArgs& args) {
  nlohmann::json layout = nlohmann::json::object();
  for (const auto& [key, member] : {std::pair("tp", "tensor_model_parallel_size"),
                                    {"cp", "context_parallel_size"},
                                    {"pp", "pipeline_model_parallel_size"},
                                    {"vpp", "virtual_pipeline_model_parallel_size"},
                                    {"ep", "expert_model_parallel_size"},
                                    {"dp", "data_parallel_size"}}) {
    if (args.find(member)) layout[key] = args.size(member);
  }
  return layout;
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
                                               "torch_dist checkpoints are not supported, only trees"));
    }
    info_.model = megatron_model(args);
    info_.layout = layout_of_args(args);
    set_vocabulary(args, options, decisions);
    for (layout::ParameterSpec& spec : layout::parameter_specs(info_.model)) {
      const std::string key = spec.key;
      specs_.emplace(key, std::move(spec));
    }
    // In an fp32 model the distributed optimizer's master weights are the weights themselves.
    const bool all_fp32 = std::all_of(reader_.tensors().begin(), reader_.tensors().end(), [](const auto& entry) {
      return is_optimizer_key(entry.first) || entry.second.dtype == SafetensorsDType::kF32;
    });
    Held again;  // master weights that repeat the weights
    bool dropped = false, same = false, in_buckets = false;
    for (const auto& [key, tensor] : reader_.tensors()) {
      const bool drop = options.drop_optimizer && is_optimizer_key(key);
      const bool is_weight = all_fp32 && is_distributed_master(key, tensor);
      const bool in_bucket = is_bucket_key(key);
      if (!drop && !in_bucket) add_tensor(key, tensor, is_weight ? again : held_);
      dropped = dropped || drop;
      same = same || (is_weight && !drop);
      in_buckets = in_buckets || (in_bucket && !drop);
    }
    const WeightReader weights(*this);
    if (in_buckets) add_buckets(args, all_fp32, weights);
    same = same || (in_buckets && all_fp32);
    if (dropped) decisions.push_back("optimizer state is left out");
    if (same) decisions.push_back("master weights repeat the fp32 weights, and are left out");
    check_complete();
    if (!args.is_set("fp8_param_gather")) {  // fp8 weights are rounded to fewer bits than their storage dtype has
      for (const Held* masters : {&held_, &again}) check_masters(*masters, weights);
    }
    note_objects(options.drop_optimizer, decisions);
    const std::vector<layout::ParameterSpec> specs = layout::parameter_specs(info_.model);
    add_megatron_progress(common.root(), args, specs, info_);
    if (in_buckets) add_settings_of_buckets(args, specs);
    if (const auto step = common_step(common)) ckpt::set_missing_steps(info_.common, *step);
  }

  std::string folder() const { return reader_.folder(); }  // of the iteration
  const ckpt::CheckpointInfo& info() const override { return info_; }
  const ckpt::ShardTable& shards() const override { return held_.shards; }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    try {
      read_shard(held_, static_cast<size_t>(shard), offset, extent, out, &DcpReader::read);
    } catch (const Error& error) {  // the reader's message names only the payload's bytes
      const int32_t tensor = held_.shards.tensor_of(static_cast<size_t>(shard));
      throw error.within(cat(core::role_name(held_.shards.role(tensor)), " of ", held_.shards.key(tensor)));
    }
  }
  void begin_one_pass() override { reader_.begin_one_pass(); }
  void end_one_pass(bool all) override { reader_.end_one_pass(all); }
  int64_t scratch_bytes() const override { return detail::kScratchBytes + core::BulkReader::kBufferBytes; }
  std::string describe(int32_t shard) const override { return describe(held_, static_cast<size_t>(shard)); }

 private:
  struct Placement {
    const std::string* key = nullptr;  // in the checkpoint
    const DcpReader::Tensor* tensor = nullptr;
    const DcpReader::Chunk* chunk = nullptr;
    int64_t layer = -1, expert = -1;  // for stacked parameters: index in the chunk
    int64_t first = -1;               // for flat parameters: element where the shard begins
  };

  struct Held {
    ckpt::ShardTable shards;
    std::vector<Placement> placements;
  };
  using Read = decltype(&DcpReader::read);  // or peek

  void read_shard(const Held& held, size_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out,
                  Read how) const {
    const Placement& place = held.placements.at(shard);
    if (place.first >= 0) return read_flat(place, held.shards[shard], offset, extent, out, how);
    core::Dims at = offset, size = extent;
    for (const int64_t stacked : {place.expert, place.layer}) {
      if (stacked < 0) continue;
      at.insert(at.begin(), stacked);
      size.insert(size.begin(), 1);
    }
    (reader_.*how)(*place.tensor, *place.chunk, at, size, out);
  }

  // Reads from a shard that is dense along the last axis of its chunk; the chunk's other axes have length one.
  void read_flat(const Placement& place, const core::ShardedTensor& shard, const core::Dims& offset,
                 const core::Dims& extent, std::byte* out, Read how) const {
    const int64_t item = core::size_of(shard.dtype);
    detail::read_dense_box(shard.local_shape, item, offset, extent, out, [&](int64_t at, std::span<std::byte> bytes) {
      core::Dims begin(place.chunk->extent.size(), 0), size(begin.size(), 1);
      begin.back() = place.first + at / item;
      size.back() = static_cast<int64_t>(bytes.size()) / item;
      (reader_.*how)(*place.tensor, *place.chunk, begin, size, bytes.data());
    });
  }

  std::string describe(const Held& held, size_t shard) const {
    const Placement& place = held.placements.at(shard);
    return cat(reader_.describe(place.chunk->payload), ": ", printable(*place.key));
  }

  // Reads weights at a few places, to prove other tensors by them.
  class WeightReader {
   public:
    explicit WeightReader(const DistSource& source) : source_(source) {
      const ckpt::ShardTable& shards = source.held_.shards;
      for (size_t s = 0; s < shards.size(); ++s) {
        const int32_t tensor = shards.tensor_of(s);
        if (shards.role(tensor) == TensorRole::kParam) shards_of_[std::string(shards.key(tensor))].push_back(s);
      }
    }
    core::DType dtype(const std::string& key) const {
      const auto found = shards_of_.find(key);
      return found == shards_of_.end() ? core::DType::kFp32 : source_.held_.shards.dtype_of(found->second[0]);
    }
    // Reads the stored part of a box, dense.
    void read(const std::string& key, const layout::Box& box, std::byte* out) const {
      const auto found = shards_of_.find(key);
      if (found == shards_of_.end()) return;
      for (const size_t s : found->second) {
        const core::ShardedTensor shard = source_.held_.shards[s];
        const auto common = layout::intersect(shard.global_offset, shard.local_shape, box.offset, box.extent);
        if (!common) continue;
        core::Dims within = common->offset, at = common->offset;
        for (size_t axis = 0; axis < at.size(); ++axis) {
          at[axis] -= shard.global_offset[axis];
          within[axis] -= box.offset[axis];
        }
        const int64_t item = core::size_of(shard.dtype);
        std::vector<std::byte> some(static_cast<size_t>(core::num_elements(common->extent) * item));
        source_.read_shard(source_.held_, s, at, common->extent, some.data(), &DcpReader::peek);
        ckpt::copy_box(some.data(), common->extent, core::Dims(within.size(), 0), out, box.extent, within,
                       common->extent, item);
      }
    }

   private:
    const DistSource& source_;
    std::map<std::string, std::vector<size_t>, std::less<>> shards_of_;
  };

  // Checks that master weights round to the weights, at both ends of each shard. megatron-core 0.16 saves elements of
  // other parameters where it pads buckets in memory (get_parameter_state_dp_zero skips the padding,
  // sharded_param_state_fully_reshardable does not).
  void check_masters(const Held& held, const WeightReader& weights) const {
    for (size_t s = 0; s < held.shards.size(); ++s) {
      if (held.shards.role(held.shards.tensor_of(s)) != TensorRole::kMaster) continue;
      const core::ShardedTensor shard = held.shards[s];
      const core::DType dtype = weights.dtype(shard.key);
      core::Dims extent(shard.local_shape.size(), 1), last = shard.local_shape;
      extent.back() = std::min(shard.local_shape.back(), kProofElements);
      for (size_t axis = 0; axis < last.size(); ++axis) last[axis] -= extent[axis];
      std::vector<std::byte> read(static_cast<size_t>(extent.back() * core::size_of(shard.dtype)));
      std::vector<std::byte> wanted(static_cast<size_t>(extent.back() * core::size_of(dtype)));
      for (const core::Dims& at : {core::Dims(last.size(), 0), last}) {
        core::Dims offset = at;
        for (size_t axis = 0; axis < at.size(); ++axis) offset[axis] += shard.global_offset[axis];
        read_shard(held, s, at, extent, read.data(), &DcpReader::peek);
        weights.read(shard.key, {offset, extent}, wanted.data());
        if (round_to_weights(read, shard.dtype, wanted, dtype)) continue;
        throw Error(
            ErrorCode::kCorruptData,
            cat(describe(held, s), ": at ", offset, " of ", shard.key,
                ": a master weight does not round to the weight, so the moments are wrong too. "
                "megatron-core writes such state where it pads buckets (overlap_grad_reduce, tied embeddings on "
                "two stages): save with dp_reshardable, or give --drop-optimizer"));
      }
    }
  }

  // The unsharded state: a separate file, or an object stored with the tensors.
  TorchFile open_common(const std::string& path) const {
    const fs::path file = fs::path(path) / "common.pt";
    if (fs::exists(file)) return TorchFile(file.string());
    for (const auto& [key, payload] : reader_.objects()) {
      if (key.starts_with("common_state/")) return reader_.open_object(payload);
    }
    throw Error(ErrorCode::kUnsupported,
                cat(path,
                    ": neither common.pt nor an object common_state: a DCP checkpoint, but not Megatron's: "
                    "it does not describe the model"));
  }

  static MegatronArgs common_args(const TorchFile& common) {
    if (const auto args = common.root().find("args")) return MegatronArgs(*args, common.where());
    throw Error(ErrorCode::kUnsupported, cat(common.where(), ": no args, which describe the model"));
  }

  void set_vocabulary(const MegatronArgs& args, const MegatronOptions& options, std::vector<std::string>& decisions) {
    const auto embedding = reader_.tensors().find("embedding.word_embeddings.weight");
    if (embedding == reader_.tensors().end() || embedding->second.shape.empty()) {
      throw Error(ErrorCode::kCorruptData,
                  cat(args.where(), ": no embedding.word_embeddings.weight in the checkpoint"));
    }
    padded_rows_ = embedding->second.shape[0];
    info_.model.vocab_size = true_vocab_size(args, options.true_vocab_size, padded_rows_,
                                             args.size("tensor_model_parallel_size"), decisions);
  }

  void add_tensor(const std::string& stored, const DcpReader::Tensor& tensor, Held& held) {
    const std::optional<Name> name = parse_name(stored);
    if (!name) {
      throw Error(ErrorCode::kUnsupported,
                  cat(where(stored, tensor),
                      ": optimizer state that is not stored by parameter is not supported yet; "
                      "Megatron's --dist-ckpt-optim-fully-reshardable stores it by parameter, and "
                      "--drop-optimizer leaves it out"));
    }
    const StoredDistKey key = parse_dist_key(name->key);
    if (is_flattened(*name, key, tensor)) return add_flattened(stored, tensor, *name, key, held);
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
    std::vector<const layout::ParameterSpec*> parameters;
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
      const auto [first_layer, end_layer] = range(key.stacks_layers, 0);
      const auto [first_expert, end_expert] = range(key.stacks_experts, axes - 1);
      for (int64_t layer = first_layer; layer < end_layer; ++layer) {
        for (int64_t expert = first_expert; expert < end_expert; ++expert) {
          const layout::ParameterSpec& spec = *parameters[static_cast<size_t>(layer * experts + expert)];
          core::Dims offset = without_first(chunk.offset, axes), extent = without_first(chunk.extent, axes);
          if (key.half > 0) offset[0] += spec.global_shape[0] / 2;
          if (spec.rule == layout::TpRule::kVocabRows)
            extent[0] = std::min(extent[0], spec.global_shape[0] - offset[0]);
          if (!extent.empty() && extent[0] <= 0) continue;  // padding only
          held.shards.push_back(
              {spec.key, role_of(spec, name->role), *dtype, spec.global_shape, offset, std::move(extent)});
          held.placements.push_back({&stored, &tensor, &chunk, key.stacks_layers ? layer - first_layer : -1,
                                     key.stacks_experts ? expert - first_expert : -1});
        }
      }
    }
  }

  // Kind fully_sharded_model_space: a rank's box of x, y of X, Y elements is flattened, so the stored tensor has shape
  // [X / x, Y / y, x y] and is cut along its last axis.
  // Source: megatron-core 0.12's megatron/core/dist_checkpointing/strategies/resharding.py.
  bool is_flattened(const Name& name, const StoredDistKey& key, const DcpReader::Tensor& tensor) const {
    if (name.role == TensorRole::kParam) return false;
    const layout::ParameterSpec* spec = find_parameter(key, 0, 0);
    return spec != nullptr && !spec->is_buffer && tensor.shape.size() == key.axes() + spec->global_shape.size() + 1;
  }

  // True for master weights that repeat the weights of an fp32 model.
  bool is_distributed_master(std::string_view stored, const DcpReader::Tensor& tensor) const {
    const std::string_view key = without_chain(stored);
    if (key.starts_with(kDistributedMaster)) return true;
    if (!key.starts_with(kFlatMaster)) return false;
    const Name name = *parse_name(stored);
    return is_flattened(name, parse_dist_key(name.key), tensor);
  }

  void add_flattened(const std::string& stored, const DcpReader::Tensor& tensor, const Name& name,
                     const StoredDistKey& key, Held& held) {
    const core::TransformerConfig& model = info_.model;
    const size_t axes = key.axes();
    const auto dtype = to_core_dtype(tensor.dtype);
    core::Dims whole = find_parameter(key, 0, 0)->global_shape;
    if (find_parameter(key, 0, 0)->rule == layout::TpRule::kVocabRows) whole[0] = padded_rows_;
    if (key.half >= 0) whole[0] /= 2;
    core::Dims box;  // of one rank
    bool fits = dtype.has_value() && (!key.stacks_layers || tensor.shape[0] == model.num_layers) &&
                (!key.stacks_experts || tensor.shape[axes - 1] == model.num_experts);
    for (size_t axis = 0; axis < whole.size(); ++axis) {
      const int64_t parts = tensor.shape[axes + axis];
      fits = fits && parts > 0 && whole[axis] % parts == 0;
      box.push_back(fits ? whole[axis] / parts : 1);
    }
    if (!fits || core::num_elements(box) != tensor.shape.back()) {
      throw Error(ErrorCode::kCorruptData, cat(where(stored, tensor), ": shape ", tensor.shape,
                                               ", which cannot be equal flat parts of the shape by args, ", whole));
    }
    for (const DcpReader::Chunk& chunk : tensor.chunks) {
      if (std::any_of(chunk.extent.begin(), chunk.extent.end() - 1, [](int64_t size) { return size != 1; })) {
        throw Error(ErrorCode::kUnsupported,
                    cat(where(stored, tensor), ": a box at ", chunk.offset, " spans several ranks' parts"));
      }
      const int64_t layer = key.stacks_layers ? chunk.offset[0] : 0,
                    expert = key.stacks_experts ? chunk.offset[axes - 1] : 0;
      const layout::ParameterSpec* spec = find_parameter(key, layer, expert);
      MS_CHECK(spec != nullptr, stored);
      seen_.emplace(name.role, spec->key);
      const int64_t begin = chunk.offset.back();
      layout::for_each_box_of_range(box, begin, chunk.extent.back(), [&](const layout::Box& part, int64_t first) {
        core::Dims offset = part.offset, extent = part.extent;
        for (size_t axis = 0; axis < box.size(); ++axis) offset[axis] += chunk.offset[axes + axis] * box[axis];
        if (key.half > 0) offset[0] += whole[0];
        extent[0] = std::min(extent[0], spec->global_shape[0] - offset[0]);
        if (extent[0] <= 0) return;  // padding only
        held.shards.push_back({spec->key, name.role, *dtype, spec->global_shape, offset, extent});
        held.placements.push_back({.key = &stored, .tensor = &tensor, .chunk = &chunk, .first = first - begin});
      });
    }
  }

  // Call after the weights are added: they prove the position of each parameter.
  void add_buckets(const MegatronArgs& args, bool all_fp32, const WeightReader& weights) {
    const BucketWeights proof = {[&](const std::string& key) { return weights.dtype(key); },
                                 [&](const layout::ParameterSpec& spec, const layout::Box& box, std::byte* out) {
                                   weights.read(spec.key, box, out);
                                 }};
    const DistBuckets buckets = read_dist_buckets(reader_, args, info_.model, padded_rows_, proof);
    for (const BucketPart& part : buckets.parts) {
      if (all_fp32 && part.role == TensorRole::kMaster) continue;
      seen_.emplace(part.role, part.spec.key);
      int64_t first = part.first;
      for (layout::Box& box : layout::boxes_of_local_range(part.spec, buckets.padded, part.cut.size, part.cut.rank,
                                                           part.begin, part.end)) {
        const int64_t elements = core::num_elements(box.extent);
        held_.shards.push_back({part.spec.key, part.role, *to_core_dtype(part.tensor->dtype), part.spec.global_shape,
                                std::move(box.offset), std::move(box.extent)});
        held_.placements.push_back({.key = part.key, .tensor = part.tensor, .chunk = part.chunk, .first = first});
        first += elements;
      }
    }
  }

  // Returns the step that a torch.optim optimizer stores besides the moments; chained optimizers have the same.
  static std::optional<int64_t> common_step(const TorchFile& common) {
    auto optimizer = common.root().find("optimizer");
    for (int depth = 0; optimizer && depth < 4; ++depth) {
      if (const auto state = optimizer->find("state")) {
        const auto step = state->find("common_step");
        return step ? read_count(common, *step) : std::nullopt;
      }
      auto inner = optimizer->find("optimizer");
      if (!inner && optimizer->is(PickleKind::kDict) && !optimizer->pairs().empty()) {
        inner = optimizer->pairs()[0].second;  // {0: .., 1: ..}
      }
      optimizer = inner;
    }
    return std::nullopt;
  }

  // Reads the settings from the object stored with the first rank's buckets.
  void add_settings_of_buckets(const MegatronArgs& args, std::span<const layout::ParameterSpec> specs) {
    for (const auto& [key, payload] : reader_.objects()) {
      if (!is_bucket_key(key) || key.find(".optimizer/") == std::string::npos) continue;
      return add_megatron_optimizer(reader_.open_object(payload).root(), args, specs, info_);
    }
  }

  static TensorRole role_of(const layout::ParameterSpec& spec, TensorRole stored) {
    return spec.is_buffer ? TensorRole::kBuffer : stored;
  }

  // Returns the parameter at these stack indices; null if there is none.
  const layout::ParameterSpec* find_parameter(const StoredDistKey& key, int64_t layer, int64_t expert) const {
    const std::string canonical = key.canonical(layer, expert);
    auto found = specs_.find(canonical);
    if (found == specs_.end()) found = specs_.find(key_of_model_with_experts(canonical));
    return found == specs_.end() ? nullptr : &found->second;
  }

  const layout::ParameterSpec& parameter_of(const std::string& stored, const DcpReader::Tensor& tensor,
                                            const StoredDistKey& key, int64_t layer, int64_t expert) const {
    const layout::ParameterSpec* found = find_parameter(key, layer, expert);
    if (found == nullptr || (found->is_buffer && is_optimizer_key(stored))) {
      throw Error(ErrorCode::kUnsupported, cat(where(stored, tensor), ": is not part of the model that args describe"));
    }
    const layout::ParameterSpec& spec = *found;
    core::Dims shape = without_first(tensor.shape, key.axes());
    if (spec.rule == layout::TpRule::kVocabRows && !shape.empty() && shape[0] == padded_rows_)
      shape[0] = spec.global_shape[0];
    if (key.half >= 0 && spec.rule == layout::TpRule::kGatedRows && !shape.empty()) shape[0] *= 2;
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

  // Checks that every parameter is complete, in every role that occurs.
  void check_complete() const {
    std::set<TensorRole> roles = {TensorRole::kParam, TensorRole::kBuffer};
    for (const auto& [role, key] : seen_) roles.insert(role);
    for (const TensorRole role : roles) {
      for (const auto& [key, spec] : specs_) {
        if (!layout::has_role(spec, role) || seen_.contains({role, key})) continue;
        throw Error(ErrorCode::kCorruptData, cat(reader_.folder(), ": no ", core::role_name(role), " of ", key,
                                                 ", which the model in args has"));
      }
    }
    for (const std::string& finding : ckpt::check_coverage(held_.shards, 1)) {
      throw Error(ErrorCode::kCorruptData, cat(reader_.folder(), ": ", finding));
    }
  }

  void note_objects(bool drop_optimizer, std::vector<std::string>& decisions) const {
    std::set<std::string> left_out;
    for (const auto& [key, payload] : reader_.objects()) {
      std::string name = key.substr(0, key.find("/shard_"));
      if (name.ends_with("._extra_state")) name = "_extra_state";
      if (is_bucket_key(name)) {
        name = name.substr(name.rfind('.') + 1);
        if (name == "param_state" && !drop_optimizer) {
          throw Error(ErrorCode::kUnsupported,
                      cat(reader_.describe(payload), ": ", printable(key),
                          ": optimizer state of the kind dp_zero_gather_scatter is not supported; --drop-optimizer "
                          "leaves it out"));
        }
        // Already read, or contained in the tensors.
        if (name == "optimizer" || name.starts_with("per_bucket_numel")) continue;
      }
      if (name != "common_state") left_out.insert(std::move(name));
    }
    for (const std::string& name : left_out)
      decisions.push_back(cat(printable(name), " is not a tensor, and left out"));
  }

  DcpReader reader_;
  ckpt::CheckpointInfo info_;
  std::map<std::string, layout::ParameterSpec> specs_;  // by key
  int64_t padded_rows_ = 0;                             // of the vocabulary
  std::set<std::pair<TensorRole, std::string>> seen_;
  Held held_;
};

}  // namespace

std::string megatron_dist_sign(const std::string& folder) {
  if (is_whole(folder)) return cat(".metadata and ", kCommitMark);
  const auto whole = megatron_iterations(folder, is_whole);
  return whole.empty() ? "" : cat(whole[0].filename().string(), "/.metadata and ", kCommitMark);
}

std::unique_ptr<ckpt::Source> open_megatron_dist(const std::string& path, const MegatronOptions& options,
                                                 std::vector<std::string>& decisions) {
  auto source = std::make_unique<DistSource>(path, options, decisions);
  const std::string folder = source->folder();
  return with_passthrough_files(std::move(source), folder);
}

}  // namespace ms::convert
