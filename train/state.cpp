#include "train/state.h"

#include <algorithm>

#include "ckpt/local.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "core/layout/tensor_cut.h"
#include "core/log.h"
#include "train/group_ranking.h"
#include "train/saved_mask.h"

namespace ms::train {
namespace {

using core::TensorRole;

// Reads a count from a checkpoint's JSON; fallback if it is missing.
int64_t count(const nlohmann::json& object, const char* key, int64_t fallback) {
  return object.is_object() && object.contains(key) ? core::json_count(object, key, "checkpoint") : fallback;
}

// Adds the boxes of flat local elements [begin, end) of a parameter. data: address of element `begin`. role: kBuffer
// for the gradient. null: it has none now.
void add_boxes(std::vector<StateBox>& boxes, const RankState& state, const Parameter& parameter, TensorRole role,
               core::DType dtype, int64_t begin, int64_t end, std::byte* data, int replica_id) {
  for (const layout::Box& box : layout::boxes_of_local_range(parameter.spec, state.config.model, parameter.cut.size,
                                                             parameter.cut.rank, begin, end)) {
    StateBox entry;
    entry.meta = {role == TensorRole::kBuffer ? parameter.spec.key + ":grad" : parameter.spec.key,
                  role,
                  dtype,
                  parameter.spec.global_shape,
                  box.offset,
                  box.extent,
                  replica_id};
    entry.data = data;
    if (data != nullptr) data += core::num_elements(box.extent) * core::size_of(dtype);
    boxes.push_back(std::move(entry));
  }
}

// 1: another rank of the model writes the same values.
int copy_of(const Parameter& parameter) { return parameter.counts_in_norm ? 0 : 1; }

// A range of elements of a parameter.
struct ElementRange {
  int64_t begin = 0, end = 0;
};

// The neighbours of a parameter in the buffers that the same ranks hold, itself included.
layout::FlatRange neighbours(const ParameterStore& parameters, const Parameter& parameter) {
  const auto is_dense = [](const layout::BufferCut::Unit& unit) { return unit.replicas == layout::Group::kDpCp; };
  if (parameter.trains() && std::ranges::all_of(parameters.cut().units(), is_dense))
    return {0, parameters.trained_elems()};
  return parameters.unit_of(parameter).range;
}

// Of a parameter that replicas hold alike, what `part` has of it: all, or the share that this rank writes.
ElementRange part_of_alike(const RankState& state, const ParameterStore& parameters, const Parameter& parameter,
                           RankPart part) {
  if (part == RankPart::kAll) return {0, parameter.size()};
  const core::Communicator& replicas = parameters.replicas(parameters.unit_of(parameter));
  const CheckpointConfig& checkpoint = state.config.checkpoint;
  // With --ckpt-gather rank 0 receives what it does not hold itself.
  if (!checkpoint.ckpt_fully_parallel_save || checkpoint.ckpt_gather)
    return replicas.rank() == 0 ? ElementRange{0, parameter.size()} : ElementRange{};
  const auto [begin, end] = neighbours(parameters, parameter);
  const int64_t each = (end - begin) / replicas.size();  // which are padded to a multiple
  const int64_t first = begin + each * replicas.rank() - parameter.offset_elems;
  return {std::max<int64_t>(0, first), std::min(parameter.size(), first + each)};
}

// Whether another instance of the optimizer writes what this rank has.
bool is_written_elsewhere(const RankState& state, RankPart part) {
  return part == RankPart::kShare && state.groups.dp_replica && state.groups.dp_replica->rank() > 0;
}

// Of a parameter whose weights are divided, what this rank has of them.
ElementRange part_of_weights(const RankState& state, const ParameterStore& parameters, const Parameter& parameter,
                             RankPart part) {
  if (is_written_elsewhere(state, part)) return {};
  const layout::FlatRange owned = parameters.owned_part(parameter);
  return {owned.begin - parameter.offset_elems, owned.end - parameter.offset_elems};
}

// Of a parameter, the part whose optimizer state this rank writes: what it owns, or if all own it, its part of that.
ElementRange part_of_state(const RankState& state, const ParameterStore& parameters, const Parameter& parameter,
                           RankPart part) {
  const layout::Sharding& sharding = parameters.cut().sharding();
  if (!sharding.state() || parameters.unit_of(parameter).whole)
    return part_of_alike(state, parameters, parameter, part);
  if (sharding.parts_of_state() == 1 && is_written_elsewhere(state, part)) return {};
  const layout::FlatRange owned = parameters.state_part(parameter);
  return {owned.begin - parameter.offset_elems, owned.end - parameter.offset_elems};
}

// Throws kInvalidArgument if the checkpoint lacks what the optimizer continues from; says what of it is not used.
void require_state_of(const OptimizerConfig& config, const ckpt::Source& source) {
  const std::vector<TensorRole> kept = optimizer_state_roles(config);
  std::string has, unused;
  for (const TensorRole role : core::kOptimizerRoles) {
    if (role == TensorRole::kMaster || !ckpt::has_role(source, role)) continue;
    has += core::cat(has.empty() ? "" : " and ", core::role_name(role));
    if (std::ranges::find(kept, role) == kept.end())
      unused += core::cat(unused.empty() ? "" : " and ", core::role_name(role));
  }
  for (const TensorRole role : kept) {
    if (ckpt::has_role(source, role)) continue;
    const std::string found = has.empty() ? "the checkpoint has no optimizer state"
                                          : core::cat("the checkpoint's optimizer state is ", has, ", but --optimizer ",
                                                      config.optimizer, " continues from ", core::role_name(role));
    throw core::Error(core::ErrorCode::kInvalidArgument,
                      core::cat(found, ". Use --no-load-optim, or --finetune to begin at iteration 0"));
  }
  if (unused.empty()) return;
  core::log_warning("train.load", core::cat("the checkpoint's ", unused, " are dropped: --optimizer ", config.optimizer,
                                            config.optimizer == "sgd" && config.sgd_momentum == 0
                                                ? " with --sgd-momentum 0 keeps no state"
                                                : " does not continue from them",
                                            "; step and schedule go on"));
}

// Throws kInvalidArgument if the checkpoint is of a run in which parameters were frozen that train here.
void require_state_of_all(const ParameterStore& parameters, const TrainerConfig& config, const ckpt::Source& source) {
  const nlohmann::json& common = source.info().common;
  const auto saved = nlohmann::json::json_pointer("/config/optimizer/freeze_parameters");
  const nlohmann::json expression = common.is_object() ? common.value(saved, nlohmann::json()) : nlohmann::json();
  if (!expression.is_string() || expression.get<std::string>().empty()) return;
  const std::vector<std::string> frozen = frozen_parameters(config.optimizer, config.model);
  std::vector<std::string> missing;
  for (const layout::ParameterSpec& spec : parameters.model()) {
    if (spec.is_buffer || std::ranges::binary_search(frozen, spec.key)) continue;
    const auto has = [&](TensorRole role) { return source.shards().find(spec.key, role).has_value(); };
    if (!std::ranges::all_of(optimizer_state_roles(config.optimizer), has)) missing.push_back(spec.key);
  }
  if (missing.empty()) return;
  constexpr size_t kShown = 3;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, missing.size()); ++i) names += core::cat(i > 0 ? ", " : "", missing[i]);
  if (missing.size() > kShown) names += core::cat(" and ", missing.size() - kShown, " more");
  throw core::Error(
      core::ErrorCode::kInvalidArgument,
      core::cat("the checkpoint has no optimizer state of ", names, ": it was saved with --freeze-parameters ",
                expression.get<std::string>(),
                ", and here they train. Give the same --freeze-parameters, or --no-load-optim to begin with new "
                "optimizer state"));
}

}  // namespace

std::vector<StateBox> state_boxes(const RankState& state, const ParameterStore& parameters, const Optimizer& optimizer,
                                  bool with_optimizer, RankPart rank_part) {
  std::vector<StateBox> boxes;
  for (const ModelBuffer& buffer : parameters.buffers()) {
    if (rank_part == RankPart::kShare && state.groups.dp_cp.rank() > 0) break;
    const core::Dims& shape = buffer.spec.global_shape;
    boxes.push_back({{buffer.spec.key, TensorRole::kBuffer, core::DType::kFp32, shape, core::Dims(shape.size()), shape,
                      state.tp_rank() == 0 ? 0 : 1},
                     buffer.values.bytes()});
  }
  for (const Parameter& parameter : parameters.all()) {
    const bool is_divided =
        parameters.cut().sharding().weights() && parameter.trains() && parameters.num_owners(parameter) > 1;
    const ElementRange part = is_divided ? part_of_weights(state, parameters, parameter, rank_part)
                                         : part_of_alike(state, parameters, parameter, rank_part);
    if (part.begin >= part.end) continue;
    const core::DType dtype = parameter.weight.dtype();
    std::byte* const data =
        is_divided
            ? parameters.owned_weights({parameter.offset_elems + part.begin, parameter.offset_elems + part.end}).bytes()
            : parameter.weight.bytes() + part.begin * core::size_of(dtype);
    add_boxes(boxes, state, parameter, TensorRole::kParam, dtype, part.begin, part.end, data, copy_of(parameter));
  }
  if (!with_optimizer) return boxes;
  const std::vector<OptimizerState> kept = optimizer.state();
  for (const Parameter& parameter : parameters.all()) {
    const ElementRange part = part_of_state(state, parameters, parameter, rank_part);
    if (!parameter.trains() || part.begin >= part.end) continue;
    const int64_t at =
        parameters.state_place({parameter.offset_elems + part.begin, parameter.offset_elems + part.end}).begin;
    for (const auto& [role, values] : kept) {
      std::byte* const data = values.defined() ? values.bytes() + at * core::size_of(core::DType::kFp32) : nullptr;
      add_boxes(boxes, state, parameter, role, core::DType::kFp32, part.begin, part.end, data, copy_of(parameter));
    }
  }
  return boxes;
}

std::vector<core::ShardedTensor> all_shards(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer) {
  std::vector<core::ShardedTensor> shards;
  for (StateBox& box : state_boxes(state, parameters, optimizer, /*with_optimizer=*/true, RankPart::kAll)) {
    shards.push_back(std::move(box.meta));
  }
  return shards;
}

std::vector<ckpt::ShardData> shards_to_save(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer, RankPart part) {
  std::vector<ckpt::ShardData> shards;
  for (StateBox& box : state_boxes(state, parameters, optimizer, state.config.checkpoint.save_optim, part)) {
    shards.push_back({std::move(box.meta), box.data});
  }
  return shards;
}

std::vector<ckpt::ShardData> gradient_shards(const RankState& state, const ParameterStore& parameters) {
  std::vector<StateBox> boxes;
  for (const Parameter& parameter : parameters.all()) {
    const ElementRange part = part_of_state(state, parameters, parameter, RankPart::kShare);
    if (!parameter.trains() || part.begin >= part.end) continue;
    const core::TensorView gradients =
        parameters.owned_grads({parameter.offset_elems + part.begin, parameter.offset_elems + part.end});
    add_boxes(boxes, state, parameter, TensorRole::kBuffer, core::DType::kFp32, part.begin, part.end, gradients.bytes(),
              copy_of(parameter));
  }
  std::vector<ckpt::ShardData> shards;
  for (StateBox& box : boxes) shards.push_back({std::move(box.meta), box.data});
  return shards;
}

ckpt::SaveRequest make_save_request(const RankState& state, const ParameterStore& parameters, Optimizer& optimizer,
                                    const Progress& progress, const nlohmann::json& model_extra, nlohmann::json common,
                                    RankPart part) {
  ckpt::SaveRequest request;
  request.info.iteration = progress.iteration;
  request.info.layout = layout::layout_to_json(state.layout());
  request.info.model = state.config.model;
  request.info.model_extra = model_extra;
  common["iteration"] = progress.iteration;
  common["consumed_train_samples"] = progress.consumed_train_samples;
  common["skipped_train_samples"] = progress.skipped_train_samples;
  common["step"] = progress.optimizer_steps;
  common["opt_param_scheduler"]["num_steps"] = progress.scheduler_samples;
  common["rng"] = {{"seed", state.config.rng.seed}};
  note_group_ranking(state.config, common);
  note_mask(state.config, common);
  request.info.common = std::move(common);
  optimizer.await_weights();
  optimizer.hold_state();
  request.shards = shards_to_save(state, parameters, optimizer, part);
  return request;
}

Progress load_state(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, ckpt::Source& source,
                    RankPart part, bool with_optimizer, const std::function<bool()>& stopped) {
  if (with_optimizer) {
    require_state_of(state.config.optimizer, source);
    if (part == RankPart::kShare) require_state_of_all(parameters, state.config, source);
  }
  optimizer.hold_state();
  std::vector<ckpt::ShardTarget> targets;
  for (StateBox& box : state_boxes(state, parameters, optimizer, /*with_optimizer=*/true, RankPart::kAll)) {
    const bool is_state = core::is_optimizer_role(box.meta.role) && box.meta.role != TensorRole::kMaster;
    if (is_state && !with_optimizer) continue;
    // Of what does not train a checkpoint has no master weights. This rank's own part has what the rank has.
    const bool has_master = part == RankPart::kAll
                                ? ckpt::has_role(source, TensorRole::kMaster)
                                : source.shards().find(box.meta.key, TensorRole::kMaster).has_value();
    // An fp32 checkpoint stores the master weights as parameters, and the other way round for a bf16 checkpoint read by
    // an fp32 run.
    if (box.meta.role == TensorRole::kMaster && !has_master) box.meta.role = TensorRole::kParam;
    if (box.meta.role == TensorRole::kParam && box.meta.dtype == core::DType::kFp32 && has_master)
      box.meta.role = TensorRole::kMaster;
    targets.push_back({std::move(box.meta), box.data});
  }
  if (part == RankPart::kAll) {
    std::vector<core::ShardedTensor> metas;
    for (const ckpt::ShardTarget& target : targets) metas.push_back(target.meta);
    metas = ckpt::own_tensors(metas);
    for (size_t i = 0; i < targets.size(); ++i) targets[i].meta = std::move(metas[i]);
  }
  ckpt::load_shards(source, targets, stopped);
  optimizer.release_state(/*is_changed=*/true);
  parameters.note_weight_change();
  Progress progress;
  progress.iteration = source.info().iteration;
  const nlohmann::json& common = source.info().common;
  progress.consumed_train_samples = count(common, "consumed_train_samples", 0);
  progress.skipped_train_samples = count(common, "skipped_train_samples", 0);
  if (!with_optimizer) return progress;
  progress.optimizer_steps = count(common, "step", progress.iteration);
  const nlohmann::json scheduler =
      common.is_object() ? common.value("opt_param_scheduler", nlohmann::json()) : nlohmann::json();
  progress.scheduler_samples = count(scheduler, "num_steps", progress.consumed_train_samples);
  return progress;
}

}  // namespace ms::train
