#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "convert/megatron/dist_keys.h"
#include "convert/megatron/optimizer_order.h"
#include "convert/megatron/state_pickle.h"
#include "convert/megatron/target_state.h"
#include "convert/megatron_target.h"
#include "convert/passthrough.h"
#include "convert/torch/archive_sink.h"
#include "convert/torch/dcp_layout.h"
#include "convert/torch/torch_writer.h"
#include "core/error.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "core/layout/parameter_specs.h"
#include "core/layout/tensor_cut.h"

namespace ms::convert {
namespace {

using core::cat;
using core::Dims;
using core::DType;
using core::TensorRole;

// dist_checkpointing/core.py (CheckpointingConfig).
constexpr const char* kCommitMark = R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, )"
                                    R"("common_backend": "torch", "common_backend_version": 1})";

// Keys of each optimizer's state: Float16OptimizerWithFloat16Params, FP32Optimizer, and
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

// parts: one per optimizer; several are numbered. The n-th storage is the n-th optimizer's step.
std::string common_pickle(const MegatronTargetState& state, std::span<const OptimizerPart> parts, bool is_fp32) {
  const bool distributed = state.optimizer == MegatronOptimizerForm::kDistributed;
  return make_pickle([&](PickleWriter& pickle) {
    const auto inner = [&](size_t part) {
      pickle.dict([&] {
        if (!distributed) {
          pickle.text("state");
          pickle.dict([&] {
            pickle.text("common_step");
            write_torch_tensor(pickle, {.storage = part, .storage_elements = 1});
          });
        }
        write_param_groups(pickle, state, parts[part], {});
      });
    };
    const auto optimizer = [&](size_t part) {
      if (!distributed && is_fp32) return inner(part);
      pickle.dict([&] {
        pickle.text("optimizer");
        inner(part);
        if (!distributed) return;
        pickle.text("param_state_sharding_type");
        pickle.text("fully_reshardable");
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
      if (parts.empty()) return;
      pickle.text("optimizer");
      if (parts.size() == 1) return optimizer(0);
      pickle.dict([&] {
        for (size_t part = 0; part < parts.size(); ++part) {
          pickle.integer(static_cast<int64_t>(part));
          optimizer(part);
        }
      });
    });
  });
}

// "3.1"; `of_none` is the length of the axis used if nothing is stacked.
std::string place_text(const Dims& numbers, int64_t of_none) {
  if (numbers.empty()) return std::to_string(of_none);
  std::string text;
  for (const int64_t number : numbers) text += cat(text.empty() ? "" : ".", number);
  return text;
}

// "decoder.layers.3.mlp.linear_fc1."
std::string module_of(const std::string& key) { return key.substr(0, key.rfind('.') + 1); }

// The name in megatron-core's own layers, where norms are modules whatever the key.
std::string own_name(const std::string& key) {
  const MegatronName name = parse_canonical_name(key);
  return megatron_name(name, {MegatronNaming::kLocal}).key(name.layer, name.expert);
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
    add_passthrough_files(source_, sink, shards_);
    place_iteration(options_, state.iteration, sink);
    return {std::move(shards_), make_archive_sink(std::move(sink))};
  }

 private:
  void describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const;
  void add_tensors(MegatronOptimizerForm optimizer);
  void add_parameter(const layout::ParameterSpec& spec, TensorRole role, DType dtype, const MegatronModel::Cut& cut,
                     int32_t file);
  size_t tensor_of(const layout::ParameterSpec& spec, const DistKey& key, TensorRole role, DType dtype);
  void add_extra_states();
  void add_common(const MegatronTargetState& state, ArchiveSinkOptions& sink) const;
  // Numbers files by global rank. in_stage: the tensor-parallel ranks of a stage are consecutive, and so are ranks that
  // share an expert.
  int32_t file_of(int in_stage, int pp) {
    const layout::ModelLayout& layout = model_.layout;
    return layout_.file_of_rank(pp * layout.tensor_model_parallel_size * layout.data_parallel_size + in_stage);
  }
  // Returns the part of the parameter that this rank writes; the first rank that has a part writes it.
  std::optional<MegatronModel::Cut> part_of_rank(const layout::ParameterSpec& spec, int in_stage) const;

  const ckpt::Source& source_;
  const MegatronTargetOptions& options_;
  const WeightDType& dtype_;
  MegatronModel model_;
  bool distributed_ = false;
  DcpLayout layout_;
  std::map<std::string, size_t> tensors_;  // key -> index in layout_
  ckpt::ShardTable shards_;
  std::vector<ArchivePlace> places_;  // of shards_
};

void DistPlanner::describe(const MegatronTargetState& state, std::vector<std::string>& decisions) const {
  if (state.optimizer != MegatronOptimizerForm::kNone) {
    decisions.push_back(distributed_ ? "optimizer state is the distributed optimizer's, fully_reshardable"
                                     : "optimizer state is the non-distributed optimizer's; "
                                       "--use-distributed-optimizer writes the distributed one's");
  }
  const bool local = options_.naming == MegatronNaming::kLocal;
  decisions.push_back(cat("each module of ", local ? "megatron-core's own" : "Transformer Engine's",
                          " layers gets an empty _extra_state; --target-norm-naming ", local ? "te" : "local",
                          " selects the others"));
}

std::optional<MegatronModel::Cut> DistPlanner::part_of_rank(const layout::ParameterSpec& spec, int in_stage) const {
  const layout::ModelLayout& layout = model_.layout;
  if (spec.expert < 0) {
    const int tp = layout.tensor_model_parallel_size;
    const int writers = spec.rule == layout::TpRule::kReplicated ? 1 : tp;
    return in_stage < writers ? std::optional(MegatronModel::Cut{tp, in_stage}) : std::nullopt;
  }
  const int etp = layout.expert_tensor_parallel_size, ep = layout.expert_model_parallel_size;
  const bool has = in_stage / etp == spec.expert / (spec.num_experts / ep);
  return has ? std::optional(MegatronModel::Cut{etp, in_stage % etp}) : std::nullopt;
}

void DistPlanner::add_tensors(MegatronOptimizerForm optimizer) {
  const layout::ModelLayout& layout = model_.layout;
  for (int pp = 0; pp < layout.pipeline_model_parallel_size; ++pp) {
    for (int rank = 0; rank < layout.tensor_model_parallel_size * layout.data_parallel_size; ++rank) {
      const auto each_parameter = [&](const auto& visit) {
        for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
          for (const layout::ParameterSpec& spec : model_.specs) {
            if (!model_.chunk_holds(spec, pp, chunk)) continue;
            if (const auto cut = part_of_rank(spec, rank)) visit(spec, *cut);
          }
        }
      };
      each_parameter([&](const auto& spec, const auto& cut) {
        const TensorRole role = spec.is_buffer ? TensorRole::kBuffer : TensorRole::kParam;
        add_parameter(spec, role, dtype_(spec.key), cut, file_of(rank, pp));
      });
      if (optimizer == MegatronOptimizerForm::kNone) continue;
      for (const TensorRole role : {TensorRole::kMaster, TensorRole::kExpAvg, TensorRole::kExpAvgSq}) {
        each_parameter([&](const auto& spec, const auto& cut) {
          const bool is_master = role == TensorRole::kMaster && !distributed_ && dtype_(spec.key) == DType::kFp32;
          if (!is_master && !spec.is_buffer) add_parameter(spec, role, DType::kFp32, cut, file_of(rank, pp));
        });
      }
    }
  }
}

size_t DistPlanner::tensor_of(const layout::ParameterSpec& spec, const DistKey& key, TensorRole role, DType dtype) {
  const std::string stored = key_of(role, distributed_, key.key);
  const auto found = tensors_.find(stored);
  if (found != tensors_.end()) return found->second;
  Dims shape = spec.global_shape;
  if (spec.rule == layout::TpRule::kVocabRows) {
    shape[0] = model_.padded.padded_vocab_size(model_.layout.tensor_model_parallel_size);
  }
  shape.insert(shape.begin(), key.stack.begin(), key.stack.end());
  return tensors_[stored] = layout_.add_tensor(stored, from_core_dtype(dtype), std::move(shape));
}

void DistPlanner::add_parameter(const layout::ParameterSpec& spec, TensorRole role, DType dtype,
                                const MegatronModel::Cut& cut, int32_t file) {
  const DistKey key = dist_key(spec, model_.config, options_.naming);
  const size_t tensor = tensor_of(spec, key, role, dtype);
  const TensorRole from = filled_from(source_, options_.with_optimizer, spec.key, role, dtype);
  const Dims local = layout::local_shape(spec, model_.padded, cut.size);
  const auto add_chunk = [&](Dims offset, Dims extent) {
    offset.insert(offset.begin(), key.at.begin(), key.at.end());
    extent.insert(extent.begin(), key.at.size(), 1);
    return layout_.add_chunk(tensor, std::move(offset), std::move(extent), file);
  };
  std::vector<layout::Box> boxes =
      layout::boxes_of_local_range(spec, model_.padded, cut.size, cut.rank, 0, core::num_elements(local));
  if (spec.rule == layout::TpRule::kVocabRows) {  // padding belongs to the chunk, but to no box
    Dims offset(local.size(), 0);
    offset[0] = cut.rank * local[0];
    const ArchivePlace place = add_chunk(std::move(offset), local);
    places_.insert(places_.end(), boxes.size(), place);
    MS_CHECK(boxes.size() <= 1, boxes.size(), " boxes of vocabulary rows");
  } else {
    for (const layout::Box& box : boxes) places_.push_back(add_chunk(box.offset, box.extent));
  }
  for (layout::Box& box : boxes) {
    shards_.push_back({spec.key, from, dtype, spec.global_shape, std::move(box.offset), std::move(box.extent)});
  }
}

void DistPlanner::add_extra_states() {
  const std::string nothing = make_pickle([](PickleWriter& pickle) { pickle.list([&] { pickle.none(); }); });
  const bool of_te = options_.naming == MegatronNaming::kTransformerEngine;
  const layout::ModelLayout& layout = model_.layout;
  for (int pp = 0; pp < layout.pipeline_model_parallel_size; ++pp) {
    for (int chunk = 0; chunk < layout.virtual_pipeline_model_parallel_size; ++chunk) {
      std::set<std::string> keys;
      const auto add = [&](const std::string& module, const DistKey& key) {
        keys.insert(cat(module, "_extra_state/shard_", place_text(key.at, 0), "_", place_text(key.stack, 1)));
      };
      for (const layout::ParameterSpec& spec : model_.specs) {
        if (!model_.chunk_holds(spec, pp, chunk)) continue;
        const DistKey key = dist_key(spec, model_.config, options_.naming);
        const std::string module = module_of(key.key);
        const bool is_norm = module.ends_with("norm.");
        const std::string own = of_te ? spec.key : own_name(spec.key);
        if ((has_extra_state(module_of(own)) && key.key != kMegatronOutput) || (of_te && is_norm)) add(module, key);
        constexpr std::string_view kProjection = "self_attention.linear_proj.";
        if (of_te && module.ends_with(kProjection)) {
          add(cat(module.substr(0, module.size() - kProjection.size()), "self_attention.core_attention."), key);
        }
      }
      for (const std::string& key : keys) layout_.add_object(key, nothing, file_of(0, pp));
    }
  }
}

void DistPlanner::add_common(const MegatronTargetState& state, ArchiveSinkOptions& sink) const {
  std::vector<OptimizerPart> parts;
  if (state.optimizer != MegatronOptimizerForm::kNone) {
    parts = {OptimizerPart::kAll};
    if (has_expert_optimizer(model_)) parts = {OptimizerPart::kDense, OptimizerPart::kExperts};
  }
  Archive archive;
  if (state.optimizer == MegatronOptimizerForm::kByPosition) {
    const auto step = static_cast<float>(state.step);
    for (size_t part = 0; part < parts.size(); ++part) {
      archive.storage_bytes.push_back(sizeof step);
      archive.contents.emplace_back(part, std::string(reinterpret_cast<const char*>(&step), sizeof step));
    }
  }
  const bool is_fp32 = std::all_of(model_.specs.begin(), model_.specs.end(), [&](const auto& spec) {
    return spec.is_buffer || dtype_(spec.key) == DType::kFp32;
  });
  archive.pickle = [state, parts, is_fp32] { return common_pickle(state, parts, is_fp32); };
  sink.files.push_back({"common.pt", {std::move(archive)}});
}

}  // namespace

MegatronTarget make_megatron_dist_target(const ckpt::Source& source, const MegatronTargetOptions& options,
                                         const std::function<DType(const std::string& key)>& dtype,
                                         std::vector<std::string>& decisions) {
  return DistPlanner(source, options, dtype).plan(decisions);
}

}  // namespace ms::convert
