#include "convert/dcp_target.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "convert/huggingface_config.h"
#include "convert/megatron/progress.h"
#include "convert/megatron/target_state.h"
#include "convert/name_map.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
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
constexpr double kAdamWLearningRate = 1e-3, kAdamWWeightDecay = 1e-2;  // torch/optim/adamw.py

class DcpPlanner {
 public:
  DcpPlanner(const ckpt::Source& source, const DcpTargetOptions& options,
             const std::function<DType(const std::string& key)>& dtype, std::vector<std::string>& decisions)
      : source_(source), options_(options), dtype_(dtype), decisions_(decisions) {}

  DcpTarget plan() {
    const core::TransformerConfig& model = source_.info().model;
    const Family& family = find_family(options_.config.at("model_type").get<std::string>());
    std::optional<MappedTensor> tied_output;
    for_each_tensor(family, model, [&](const MappedTensor& mapped) {
      if (mapped.is_copy) return;  // of layers that transformers does not make
      add_tensor(mapped, mapped.role, dtype_(mapped.key));
      if (model.untie_embeddings_and_output_weights || mapped.key != "embedding.word_embeddings.weight") return;
      tied_output = mapped;
      tied_output->name = kHfOutput;
    });
    const size_t parameters = tensors_.size();
    if (tied_output) add_tensor(*tied_output, TensorRole::kParam, dtype_(tied_output->key));
    tensors_.resize(parameters);  // a tied output layer is no parameter of its own
    if (tied_output) say("the tied output layer is written too, as ", kHfOutput, ", since a model's state_dict has it");
    if (options_.with_optimizer) add_optimizer(family, model);
    ArchiveSinkOptions sink;
    sink.folder = options_.folder;
    if (fs::exists(sink.folder)) {
      throw Error(ErrorCode::kInvalidArgument, cat(options_.folder, " is there already; give another --save-dir"));
    }
    sink.places = std::move(places_);
    sink.files = layout_.take_files();
    sink.write_path = options_.write_path;
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
  void add_optimizer(const Family& family, const core::TransformerConfig& model);
  void add_group();
  void add_setting(const std::string& name, const std::function<void(PickleWriter&)>& value);
  void say(const auto&... parts) { decisions_.push_back(cat(parts...)); }

  const ckpt::Source& source_;
  const DcpTargetOptions& options_;
  const std::function<DType(const std::string& key)>& dtype_;
  std::vector<std::string>& decisions_;
  std::vector<std::string> tensors_;  // names of the parameters, in the order of the model
  DcpLayout layout_;
  std::map<std::string, std::vector<ArchivePlace>> chunks_;  // of tensors, by key
  ckpt::ShardTable shards_;
  std::vector<ArchivePlace> places_;  // of shards_
};

// What a model in memory calls the tensor: experts lie there in one.
std::string name_in_memory(const MappedTensor& mapped) { return mapped.also.empty() ? mapped.name : mapped.also; }

// torch.chunk's cut along the first axis: as many rows for each rank but the last ones.
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
    if (role == TensorRole::kParam) tensors_.push_back(name);
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
      if (mapped.transposed) {  // the rows of the stored matrix are our columns
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

void DcpPlanner::add_optimizer(const Family& family, const core::TransformerConfig& model) {
  const nlohmann::json& common = source_.info().common;
  const int64_t iteration = source_.info().iteration;
  const int64_t step = common.is_object() ? common.value("step", iteration) : iteration;
  const auto counted = static_cast<float>(step);
  const std::string step_bytes(reinterpret_cast<const char*>(&counted), sizeof counted);
  for (const TensorRole role : {TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
    for_each_tensor(family, model, [&](const MappedTensor& mapped) {
      if (mapped.is_copy || mapped.role == TensorRole::kBuffer) return;
      if (!source_.shards().find(mapped.key, role)) {
        throw Error(ErrorCode::kUnsupported,
                    cat("the optimizer state has no ", core::role_name(role), " of ", mapped.key,
                        ", and AdamW's of all parameters is written; give --drop-optimizer to leave it out"));
      }
      add_tensor(mapped, role, DType::kFp32);
    });
  }
  for (const std::string& name : tensors_) {
    const size_t counter = layout_.add_tensor(cat(kOptimizer, ".", kState, ".", name, ".step"), SafetensorsDType::kF32,
                                              {}, {kOptimizer, kState, name, "step"});
    layout_.add_chunk(counter, {}, {}, layout_.file_of_rank(0), step_bytes);
  }
  add_group();
  if (ckpt::has_role(source_, TensorRole::kMaster)) say("weights are the fp32 master weights, as FSDP keeps them");
  say("the iteration is AdamW's step, ", step,
      "; consumed samples and the schedule of the learning rate have no place");
}

void DcpPlanner::add_setting(const std::string& name, const std::function<void(PickleWriter&)>& value) {
  layout_.add_object(cat(kOptimizer, ".", kGroups, ".0.", name), make_pickle(value), layout_.file_of_rank(0),
                     {kOptimizer, kGroups, int64_t{0}, name});
}

// What torch.optim.AdamW has in a group: one, of all parameters.
void DcpPlanner::add_group() {
  const nlohmann::json schedule = megatron_scheduler(source_.info());
  const auto settings = adam_settings(source_.info());
  const AdamSettings adam = settings.value_or(AdamSettings());
  const auto real = [&](const char* name, double value) {
    add_setting(name, [value](PickleWriter& pickle) { pickle.real(value); });
  };
  real("lr", schedule.is_null() ? kAdamWLearningRate : schedule["max_lr"].get<double>());
  add_setting("betas", [&](PickleWriter& pickle) {
    pickle.tuple([&] {
      pickle.real(adam.beta1);
      pickle.real(adam.beta2);
    });
  });
  real("eps", adam.eps);
  real("weight_decay", schedule.is_null() ? kAdamWWeightDecay : schedule["end_wd"].get<double>());
  for (const char* off : {"amsgrad", "maximize", "capturable", "differentiable"}) {
    add_setting(off, [](PickleWriter& pickle) { pickle.boolean(false); });
  }
  for (const char* none : {"foreach", "fused"}) add_setting(none, [](PickleWriter& pickle) { pickle.none(); });
  add_setting("decoupled_weight_decay", [](PickleWriter& pickle) { pickle.boolean(true); });
  add_setting("params", [&](PickleWriter& pickle) {
    pickle.list([&] {
      for (const std::string& name : tensors_) pickle.text(name);
    });
  });
  if (schedule.is_null() || !settings) {
    say("the source does not say all of AdamW's settings: PyTorch's defaults are written instead, all parameters are "
        "in one "
        "group");
  }
}

}  // namespace

DcpTarget make_dcp_target(const ckpt::Source& source, const DcpTargetOptions& options,
                          const std::function<DType(const std::string& key)>& dtype,
                          std::vector<std::string>& decisions) {
  return DcpPlanner(source, options, dtype, decisions).plan();
}

}  // namespace ms::convert
