#include <algorithm>
#include <map>
#include <set>

#include "convert/megatron/state_pickle.h"
#include "convert/megatron/target_state.h"
#include "convert/megatron_target.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::DType;
using core::TensorRole;

constexpr std::string_view kLayers = "decoder.layers.";
// dist_checkpointing/core.py (CheckpointingConfig).
constexpr const char* kCommitMark = R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
                                    R"("common_backend": "torch", "common_backend_version": 1})";

// "decoder.layers.3.mlp.linear_fc1.weight" without the layer; other keys as they are.
std::string stacked_key(const ckpt::ParameterSpec& spec) {
  if (!spec.key.starts_with(kLayers)) return spec.key;
  return cat(kLayers, spec.key.substr(spec.key.find('.', kLayers.size()) + 1));
}

// What each optimizer keeps, and as what: Float16OptimizerWithFloat16Params, FP32Optimizer, and
// DistributedOptimizer.sharded_param_state_fully_reshardable.
std::string key_of(TensorRole role, bool distributed, const std::string& key) {
  switch (role) {
    case TensorRole::kMaster:
      return cat(distributed ? "optimizer.state.param." : "optimizer.state.fp32_param.", key);
    case TensorRole::kExpAvg:
      return cat("optimizer.state.exp_avg.", key);
    case TensorRole::kExpAvgSq:
      return cat("optimizer.state.exp_avg_sq.", key);
    default:
      return key;
  }
}

std::string common_pickle(const MegatronTargetState& state, bool is_fp32) {
  const bool distributed = state.optimizer == MegatronOptimizerForm::kDistributed;
  return make_pickle([&](PickleWriter& pickle) {
    const auto inner = [&] {
      pickle.dict([&] {
        if (!distributed) {
          pickle.text("state");
          pickle.dict([&] {
            pickle.text("common_step");
            write_torch_tensor(pickle, {.storage = 0, .storage_elements = 1});
          });
        }
        write_param_groups(pickle, state, OptimizerPart::kAll, {});
      });
    };
    pickle.dict([&] {
      write_megatron_args(pickle, state);
      pickle_entry(pickle, "checkpoint_version", kMegatronCheckpointVersion);
      pickle_entry(pickle, "iteration", state.iteration);
      write_megatron_scheduler(pickle, state);
      pickle.text("content_metadata");
      pickle.dict([&] {
        if (distributed) {
          pickle.text("distrib_optim_sharding_type");
          pickle.text("fully_reshardable");
          pickle_entry(pickle, "distrib_optim_fully_reshardable_mem_efficient", false);
        }
        pickle_entry(pickle, "singleton_local_shards", false);
        pickle_entry(pickle, "chained_optim_avoid_prefix", true);
      });
      if (state.optimizer == MegatronOptimizerForm::kNone) return;
      pickle.text("optimizer");
      if (!distributed && is_fp32) return inner();
      pickle.dict([&] {
        pickle.text("optimizer");
        inner();
        if (!distributed) return;
        pickle.text("param_state_sharding_type");
        pickle.text("fully_reshardable");
      });
    });
  });
}

class DistPlanner {
 public:
  DistPlanner(const ckpt::Source& source, const MegatronTargetOptions& options, const WeightDType& dtype)
      : source_(source), options_(options), dtype_(dtype), model_(megatron_target_model(source, options)) {}

  MegatronTarget plan(std::vector<std::string>& decisions) {
    const MegatronTargetState state = plan_target_state(source_, options_, model_, dtype_, decisions);
    distributed_ = state.optimizer == MegatronOptimizerForm::kDistributed;
    describe(state, decisions);
    add_tensors(state.optimizer);
    add_extra_states();
    ArchiveSinkOptions sink;
    sink.places = std::move(places_);
    sink.files = layout_.take_files();
    add_common(state, sink);
    sink.texts.emplace_back(".metadata", [layout = std::move(layout_)] { return layout.metadata(); });
    sink.texts.emplace_back("metadata.json", [] { return std::string(kCommitMark); });
    place_iteration(options_, state.iteration, sink);
    return {std::move(shards_), make_archive_sink(std::move(sink))};
  }

 private:
  void describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const;
  void add_tensors(MegatronOptimizerForm optimizer);
  void add_parameter(const ckpt::ParameterSpec& spec, TensorRole role, DType dtype, int tp, int32_t file);
  size_t tensor_of(const ckpt::ParameterSpec& spec, TensorRole role, DType dtype);
  void add_extra_states();
  void add_common(const MegatronTargetState& state, ArchiveSinkOptions& sink) const;
  // Global rank: tensor-parallel ranks are next to each other.
  int32_t file_of(int tp, int pp) { return layout_.file_of_rank(pp * model_.layout.tensor_model_parallel_size + tp); }

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const WeightDType& dtype_;
  MegatronModel model_;
  bool distributed_ = false;
  DcpLayout layout_;
  std::map<std::string, size_t> tensors_;  // by key: index in layout_
  ckpt::ShardTable shards_;
  std::vector<ArchivePlace> places_;  // of shards_
};

void DistPlanner::describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const {
  if (state.optimizer != MegatronOptimizerForm::kNone) {
    decisions.push_back(distributed_ ? "optimizer state is the distributed optimizer's, fully_reshardable"
                                     : "optimizer state is that of the optimizer that is not distributed; "
                                       "--use-distributed-optimizer writes the other's");
  }
  const bool local = options_.naming == MegatronNaming::kLocal;
  decisions.push_back(cat("each module of ", local ? "megatron-core's own" : "Transformer Engine's",
                          " layers gets an empty _extra_state; --target-norm-naming ", local ? "te" : "local",
                          " goes by the others'"));
}

void DistPlanner::add_tensors(MegatronOptimizerForm optimizer) {
  const ckpt::ModelLayout& layout = model_.layout;
  for (int pp = 0; pp < layout.pipeline_model_parallel_size; ++pp) {
    for (int tp = 0; tp < layout.tensor_model_parallel_size; ++tp) {
      const int32_t file = file_of(tp, pp);
      const auto each_parameter = [&](const auto& visit) {
        for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
          for (const ckpt::ParameterSpec& spec : model_.specs) {
            const bool elsewhere = tp > 0 && spec.rule == ckpt::TpRule::kReplicated;
            if (model_.chunk_holds(spec, pp, chunk) && !elsewhere) visit(spec);
          }
        }
      };
      each_parameter([&](const auto& spec) { add_parameter(spec, TensorRole::kParam, dtype_(spec.key), tp, file); });
      if (optimizer == MegatronOptimizerForm::kNone) continue;
      for (const TensorRole role : {TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
        each_parameter([&](const auto& spec) {
          const bool is_master = role == TensorRole::kMaster && !distributed_ && dtype_(spec.key) == DType::kFp32;
          if (!is_master) add_parameter(spec, role, DType::kFp32, tp, file);
        });
      }
    }
  }
}

size_t DistPlanner::tensor_of(const ckpt::ParameterSpec& spec, TensorRole role, DType dtype) {
  const std::string key = key_of(role, distributed_, stacked_key(spec));
  const auto found = tensors_.find(key);
  if (found != tensors_.end()) return found->second;
  Dims shape = spec.global_shape;
  if (spec.rule == ckpt::TpRule::kVocabRows) {
    shape[0] = model_.padded.padded_vocab_size(model_.layout.tensor_model_parallel_size);
  }
  if (spec.key.starts_with(kLayers)) shape.insert(shape.begin(), model_.config.num_layers);
  return tensors_[key] = layout_.add_tensor(key, from_core_dtype(dtype), std::move(shape));
}

void DistPlanner::add_parameter(const ckpt::ParameterSpec& spec, TensorRole role, DType dtype, int tp, int32_t file) {
  const int tp_size = model_.layout.tensor_model_parallel_size;
  const size_t tensor = tensor_of(spec, role, dtype);
  const TensorRole from = filled_from(source_, options_.with_optimizer, spec.key, role, dtype);
  const Dims local = ckpt::local_shape(spec, model_.padded, tp_size);
  const auto add_chunk = [&](Dims offset, Dims extent) {
    if (spec.key.starts_with(kLayers)) {
      offset.insert(offset.begin(), spec.layer);
      extent.insert(extent.begin(), 1);
    }
    return layout_.add_chunk(tensor, std::move(offset), std::move(extent), file);
  };
  std::vector<ckpt::Box> boxes =
      ckpt::boxes_of_local_range(spec, model_.padded, tp_size, tp, 0, core::num_elements(local));
  if (spec.rule == ckpt::TpRule::kVocabRows) {  // padding belongs to the chunk, and to no box
    Dims offset(local.size(), 0);
    offset[0] = tp * local[0];
    const ArchivePlace place = add_chunk(std::move(offset), local);
    places_.insert(places_.end(), boxes.size(), place);
    MS_CHECK(boxes.size() <= 1, boxes.size(), " boxes of vocabulary rows");
  } else {
    for (const ckpt::Box& box : boxes) places_.push_back(add_chunk(box.offset, box.extent));
  }
  for (ckpt::Box& box : boxes) {
    shards_.push_back({spec.key, from, dtype, spec.global_shape, std::move(box.offset), std::move(box.extent)});
  }
}

// Each a list of one None: what megatron-core has of them where nothing is computed in fp8.
void DistPlanner::add_extra_states() {
  const std::string nothing = make_pickle([](PickleWriter& pickle) { pickle.list([&] { pickle.none(); }); });
  const bool of_te = options_.naming == MegatronNaming::kTransformerEngine;
  const ckpt::ModelLayout& layout = model_.layout;
  for (int pp = 0; pp < layout.pipeline_model_parallel_size; ++pp) {
    for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
      std::set<std::string> keys;
      const auto add = [&](const std::string& module, const ckpt::ParameterSpec& spec) {
        const bool in_layer = spec.key.starts_with(kLayers);
        keys.insert(cat(module, "_extra_state/shard_", in_layer ? spec.layer : 0, "_",
                        in_layer ? model_.config.num_layers : 1));
      };
      for (const ckpt::ParameterSpec& spec : model_.specs) {
        if (!model_.chunk_holds(spec, pp, chunk)) continue;
        const std::string key = stacked_key(spec), module = key.substr(0, key.rfind('.') + 1);
        const bool is_norm = module.ends_with("_layernorm.");
        if ((has_extra_state(module) && key != kMegatronOutput) || (of_te && is_norm)) add(module, spec);
        if (of_te && module.ends_with("self_attention.linear_proj.")) {
          add(cat(kLayers, "self_attention.core_attention."), spec);
        }
      }
      for (const std::string& key : keys) layout_.add_object(key, nothing, file_of(0, pp));
    }
  }
}

void DistPlanner::add_common(const MegatronTargetState& state, ArchiveSinkOptions& sink) const {
  Archive archive;
  if (state.optimizer == MegatronOptimizerForm::kByPosition) {
    const auto step = static_cast<float>(state.step);
    archive.storage_bytes.push_back(sizeof step);
    archive.contents.emplace_back(0, std::string(reinterpret_cast<const char*>(&step), sizeof step));
  }
  const bool is_fp32 = std::all_of(model_.specs.begin(), model_.specs.end(),
                                   [&](const auto& spec) { return dtype_(spec.key) == DType::kFp32; });
  archive.pickle = [state, is_fp32] { return common_pickle(state, is_fp32); };
  sink.files.push_back({"common.pt", {std::move(archive)}});
}

}  // namespace

MegatronTarget make_megatron_dist_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions) {
  return DistPlanner(source, options, dtype).plan(decisions);
}

}  // namespace ms::convert
