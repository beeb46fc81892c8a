#include "convert/dcp_target.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "convert/huggingface_config.h"
#include "convert/megatron/target_state.h"
#include "convert/name_map.h"
#include "convert/optimizer_groups.h"
#include "convert/passthrough.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
#include "convert/torch/plain_value.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

namespace fs = std::filesystem;
using core::cat;
using core::Dims;
using core::DType;
using core::Error;
using core::ErrorCode;
using core::TensorRole;

constexpr const char *kModel = "model", *kOptimizer = "optim", *kState = "state", *kGroups = "param_groups";
// Further members of a torch.optim.AdamW group, used if the source lacks them (torch/optim/adamw.py): none of them
// changes the result of an Adam step without amsgrad.
const nlohmann::json& adamw_options() {
  static const nlohmann::json options = {
      {"amsgrad", false},   {"maximize", false}, {"capturable", false},           {"differentiable", false},
      {"foreach", nullptr}, {"fused", nullptr},  {"decoupled_weight_decay", true}};
  return options;
}

class DcpPlanner {
 public:
  DcpPlanner(const ckpt::Source& source, const DcpTargetOptions& options,
             const std::function<DType(const std::string& key)>& dtype, std::vector<std::string>& decisions)
      : source_(source), options_(options), dtype_(dtype), decisions_(decisions) {}

  DcpTarget plan() {
    const core::TransformerConfig& model = source_.info().model;
    const std::shared_ptr<const Family> held = family_of_result(options_.config, source_.info().model_extra);
    const Family& family = *held;
    std::optional<MappedTensor> tied_output;
    for_each_tensor(family, model, [&](const MappedTensor& mapped) {
      if (mapped.is_copy) return;  // multi-token prediction layers, which transformers does not create
      add_tensor(mapped, mapped.role, dtype_(mapped.key));
      if (model.untie_embeddings_and_output_weights || mapped.key != "embedding.word_embeddings.weight") return;
      tied_output = mapped;
      tied_output->name = output_name(family);
    });
    if (tied_output) add_tensor(*tied_output, TensorRole::kParam, dtype_(tied_output->key));
    add_passthrough();
    if (tied_output) {
      say("the tied output layer is written too, as ", tied_output->name, ", since a model's state_dict has it");
    }
    if (options_.with_optimizer) add_optimizer(family, model);
    ArchiveSinkOptions sink;
    sink.root = options_.folder;
    if (fs::exists(sink.root)) {
      throw Error(ErrorCode::kInvalidArgument, cat(options_.folder, " already exists; give another --save-dir"));
    }
    sink.places = std::move(places_);
    sink.files = layout_.take_files();
    sink.writing = options_.writing;
    sink.texts.emplace_back("config.json", [config = options_.config] { return hf_json_text(config); });
    sink.texts.emplace_back(".metadata", [layout = std::move(layout_)] { return layout.metadata(); });
    return {std::move(shards_), make_archive_sink(std::move(sink))};
  }

 private:
  void add_tensor(const MappedTensor& mapped, TensorRole role, DType dtype);
  std::vector<ArchivePlace> add_chunks(const std::string& key, const Dims& shape, DType dtype, const DcpPath& path);
  int64_t rows_each(const Dims& shape) const {
    return (shape[0] + options_.data_parallel_size - 1) / options_.data_parallel_size;
  }
  void add_passthrough();
  void add_optimizer(const Family& family, const core::TransformerConfig& model);
  void add_groups(const std::vector<NamedGroup>& groups);
  void add_group(size_t index, const NamedGroup& group);
  void add_scheduler();
  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  const ckpt::Source& source_;
  const DcpTargetOptions& options_;
  const std::function<DType(const std::string& key)>& dtype_;
  std::vector<std::string>& decisions_;
  DcpLayout layout_;
  std::map<std::string, std::vector<ArchivePlace>> chunks_;  // of tensors, by key
  ckpt::ShardTable shards_;
  std::vector<ArchivePlace> places_;  // of shards_
};

// Cuts along the first axis as torch.chunk does: equal parts, except the last ones.
std::vector<ArchivePlace> DcpPlanner::add_chunks(const std::string& key, const Dims& shape, DType dtype,
                                                 const DcpPath& path) {
  const size_t tensor = layout_.add_tensor(key, from_core_dtype(dtype), shape, path);
  std::vector<ArchivePlace> chunks;
  for (int rank = 0; rank < options_.data_parallel_size; ++rank) {
    const int64_t begin = rank * rows_each(shape), end = std::min(shape[0], begin + rows_each(shape));
    if (begin >= end) break;
    Dims offset(shape.size(), 0), extent = shape;
    offset[0] = begin;
    extent[0] = end - begin;
    chunks.push_back(layout_.add_chunk(tensor, std::move(offset), std::move(extent), layout_.file_of_rank(rank)));
  }
  return chunks;
}

void DcpPlanner::add_tensor(const MappedTensor& mapped, TensorRole role, DType dtype) {
  const bool is_weight = role == TensorRole::kParam || role == TensorRole::kBuffer;
  const char* moment = role == TensorRole::kExpAvg ? "exp_avg" : "exp_avg_sq";
  const std::string name = name_in_memory(mapped);
  const std::string key = is_weight ? cat(kModel, ".", name) : cat(kOptimizer, ".", kState, ".", name, ".", moment);
  const DcpPath path = is_weight ? DcpPath{kModel, name} : DcpPath{kOptimizer, kState, name, moment};
  const bool packed = mapped.expert >= 0;  // [experts, rows, columns], cut between experts
  const Dims shape =
      packed ? Dims{source_.info().model.num_experts, mapped.packed_rows, mapped.shape[1]} : mapped.shape;
  auto found = chunks_.find(key);
  if (found == chunks_.end()) {
    found = chunks_.emplace(key, add_chunks(key, shape, dtype, path)).first;
  }
  const std::vector<ArchivePlace>& chunks = found->second;
  const TensorRole from = filled_from(source_, options_.with_optimizer, mapped.key, role, dtype);
  const int64_t item = core::size_of(dtype), each = rows_each(shape),
                row_bytes = core::num_elements(shape) / shape[0] * item;
  const auto add = [&](const ArchivePlace& place, Dims offset, Dims extent) {
    places_.push_back(place);
    shards_.push_back({mapped.key, from, dtype, mapped.global_shape, std::move(offset), std::move(extent)});
  };
  if (packed) {
    const int64_t rank = mapped.expert / each;
    for (const TensorPiece& piece : mapped.pieces) {
      ArchivePlace place = chunks[static_cast<size_t>(rank)];
      place.offset_bytes =
          (mapped.expert - rank * each) * row_bytes + (mapped.packed_row + piece.row) * mapped.shape[1] * item;
      add(place, piece.offset, piece.extent);
    }
    return;
  }
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    const int64_t begin = static_cast<int64_t>(rank) * each, end = std::min(shape[0], begin + each);
    for (const TensorPiece& piece : mapped.pieces) {
      Dims offset = piece.offset, extent = piece.extent;
      ArchivePlace place = chunks[rank];
      if (mapped.transposed) {  // rows of the stored matrix are columns of ours
        offset[1] += begin;
        extent[1] = end - begin;
        place.offset_bytes = piece.row * item;
        place.transposed_columns = shape[1];
      } else {
        const int64_t first = std::max(begin, piece.row), last = std::min(end, piece.row + piece.extent[0]);
        if (first >= last) continue;
        offset[0] += first - piece.row;
        extent[0] = last - first;
        place.offset_bytes = (first - begin) * row_bytes;
      }
      add(place, std::move(offset), std::move(extent));
    }
  }
}

// Adds tensors under their own names, cut by rows over the ranks.
void DcpPlanner::add_passthrough() {
  for (const core::ShardedTensor& tensor : passthrough_tensors(source_)) {
    MappedTensor mapped;
    mapped.name = mapped.key = tensor.key;
    mapped.shape = mapped.global_shape = tensor.global_shape;
    mapped.role = TensorRole::kBuffer;
    if (tensor.global_shape.empty()) {
      throw Error(ErrorCode::kUnsupported, cat(tensor.key,
                                               ", a scalar outside the family, cannot be copied to a dcp result; "
                                               "--drop-passthrough leaves such tensors out"));
    }
    mapped.pieces = {{0, core::Dims(tensor.global_shape.size(), 0), tensor.global_shape}};
    add_tensor(mapped, TensorRole::kBuffer, tensor.dtype);
  }
}

void DcpPlanner::add_optimizer(const Family& family, const core::TransformerConfig& model) {
  for (const TensorRole role : {TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    for_each_tensor(family, model, [&](const MappedTensor& mapped) {
      if (mapped.is_copy || mapped.role == TensorRole::kBuffer) return;
      if (!source_.shards().find(mapped.key, role)) {
        throw Error(ErrorCode::kUnsupported,
                    cat("the optimizer state has no ", core::role_name(role), " of ", mapped.key,
                        ", and AdamW's state of all parameters is needed; give --drop-optimizer to leave it out"));
      }
      add_tensor(mapped, role, DType::kFp32);
    });
  }
  std::vector<ckpt::OptimizerGroup> settings = ckpt::optimizer_groups(source_);
  if (settings.empty()) settings.emplace_back();
  const std::vector<NamedGroup> groups = named_groups(settings, family, model);
  for (const NamedGroup& group : groups) {
    // If the source does not count steps, its iteration is the step.
    const auto counted = static_cast<float>(group.settings.step.value_or(source_.info().iteration));
    const std::string step_bytes(reinterpret_cast<const char*>(&counted), sizeof counted);
    for (const std::string& name : group.names) {
      const size_t counter = layout_.add_tensor(cat(kOptimizer, ".", kState, ".", name, ".step"),
                                                SafetensorsDType::kF32, {}, {kOptimizer, kState, name, "step"});
      layout_.add_chunk(counter, {}, {}, layout_.file_of_rank(0), step_bytes);
    }
  }
  add_groups(groups);
  add_scheduler();
  if (ckpt::has_role(source_, TensorRole::kMaster))
    say("weights are filled from the fp32 master weights, as FSDP stores them");
  say("the iteration is AdamW's step, ", groups[0].settings.step.value_or(source_.info().iteration),
      "; consumed samples",
      source_.info().common.contains("opt_param_scheduler") ? " and opt_param_scheduler are" : " are", " not copied");
}

// Writes groups by position, as get_state_dict does, and by parameter name, as flatten_optimizer_state_dict does.
void DcpPlanner::add_groups(const std::vector<NamedGroup>& groups) {
  std::string missing;
  for (size_t i = 0; i < groups.size(); ++i) {
    add_group(i, groups[i]);
    const ckpt::OptimizerGroup& settings = groups[i].settings;
    const std::pair<const char*, bool> wanted[] = {
        {"lr (--lr)", settings.lr.has_value()},
        {"betas (--adam-beta1, --adam-beta2)", settings.beta1 && settings.beta2},
        {"eps (--adam-eps)", settings.eps.has_value()},
        {"weight_decay (--weight-decay)", settings.weight_decay.has_value()}};
    for (const auto& [name, known] : wanted) {
      if (!known && missing.find(name) == std::string::npos) missing += cat(missing.empty() ? "" : ", ", name);
    }
  }
  if (missing.empty()) return;
  say("the source lacks ", missing,
      ": left out, so that dcp.load needs DefaultLoadPlanner(allow_partial_load=True) and the optimizer keeps its own");
}

void DcpPlanner::add_group(size_t index, const NamedGroup& group) {
  const ckpt::OptimizerGroup& settings = group.settings;
  const auto add = [&](const std::string& member, const std::function<void(PickleWriter&)>& value) {
    const std::string pickle = make_pickle(value);
    layout_.add_object(cat(kOptimizer, ".", kGroups, ".", index, ".", member), pickle, layout_.file_of_rank(0),
                       {kOptimizer, kGroups, static_cast<int64_t>(index), member});
    if (member == "params") return;
    for (const std::string& name : group.names) {
      const std::string flat = cat(kGroups, ".", name, ".", member);
      layout_.add_object(cat(kOptimizer, ".", flat), pickle, layout_.file_of_rank(0), {kOptimizer, flat});
    }
  };
  const auto add_real = [&](const char* member, std::optional<double> value) {
    if (value) add(member, [value](PickleWriter& pickle) { pickle.real(*value); });
  };
  add_real("lr", settings.lr);
  add_real("initial_lr", settings.initial_lr);
  if (settings.beta1 && settings.beta2) {
    add("betas", [&](PickleWriter& pickle) {
      pickle.tuple([&] {
        pickle.real(*settings.beta1);
        pickle.real(*settings.beta2);
      });
    });
  }
  add_real("eps", settings.eps);
  add_real("weight_decay", settings.weight_decay);
  nlohmann::json options = adamw_options();
  options.update(settings.options);
  for (const auto& [member, value] : options.items()) {
    add(member, [&, &value = value](PickleWriter& pickle) { write_plain_value(pickle, value); });
  }
  add("params", [&](PickleWriter& pickle) {
    pickle.list([&] {
      for (const std::string& name : group.names) pickle.text(name);
    });
  });
}

// Writes the state of a torch.optim scheduler, if the source has one.
void DcpPlanner::add_scheduler() {
  const nlohmann::json scheduler = source_.info().common.value("lr_scheduler", nlohmann::json());
  if (!scheduler.is_object()) return;
  if (!scheduler.contains("key") || !scheduler.contains("state") || !scheduler["key"].is_string() ||
      !scheduler["state"].is_object()) {
    return say("the learning rate scheduler is not torch.optim's, and is dropped");
  }
  const std::string key = scheduler["key"].get<std::string>();
  DcpPath path;
  for (size_t at = 0; at != std::string::npos;) {
    const size_t dot = key.find('.', at);
    path.emplace_back(key.substr(at, dot == std::string::npos ? dot : dot - at));
    at = dot == std::string::npos ? dot : dot + 1;
  }
  for (const auto& [member, value] : scheduler["state"].items()) {
    DcpPath full = path;
    full.emplace_back(member);
    layout_.add_object(cat(key, ".", member),
                       make_pickle([&, &value = value](PickleWriter& pickle) { write_plain_value(pickle, value); }),
                       layout_.file_of_rank(0), std::move(full));
  }
}

}  // namespace

DcpTarget make_dcp_target(const ckpt::Source& source, const DcpTargetOptions& options,
                          const std::function<DType(const std::string& key)>& dtype,
                          std::vector<std::string>& decisions) {
  return DcpPlanner(source, options, dtype, decisions).plan();
}

}  // namespace ms::convert
