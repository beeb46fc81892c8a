#include "train/state.h"

#include <algorithm>

#include "ckpt/local.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/layout/box.h"
#include "core/layout/model_layout.h"
#include "core/layout/tensor_cut.h"
#include "core/log.h"

namespace ms::train {
namespace {

using core::TensorRole;

// Reads a count from a checkpoint's JSON; fallback if it is missing.
int64_t count(const nlohmann::json& object, const char* key, int64_t fallback) {
  return object.is_object() && object.contains(key) ? core::json_count(object, key, "checkpoint") : fallback;
}

// Adds the boxes of flat local elements [begin, end) of a parameter. data: address of element `begin`. role: kBuffer
// for the gradient.
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
    data += core::num_elements(box.extent) * core::size_of(dtype);
    boxes.push_back(std::move(entry));
  }
}

// 1: another rank of the model writes the same values.
int copy_of(const Parameter& parameter) { return parameter.counts_in_norm ? 0 : 1; }

SectionRanges all_elements(const ParameterStore& parameters) {
  SectionRanges all;
  for (size_t section = 0; section < all.size(); ++section) {
    const layout::FlatRange& range = parameters.sections()[section].range;
    all[section] = {range.begin, range.end};
  }
  return all;
}

SectionRanges owned_elements(const Optimizer& optimizer) {
  SectionRanges owned;
  const auto ranges = optimizer.owned().ranges();
  std::ranges::transform(ranges, owned.begin(), [](const layout::FlatRange& range) {
    return ElementRange{range.begin, range.end};
  });
  return owned;
}

// The part that this rank writes of the state that data-parallel ranks hold alike.
SectionRanges share_to_write(const RankState& state, const ParameterStore& parameters) {
  const CheckpointConfig& checkpoint = state.config.checkpoint;
  SectionRanges shares = all_elements(parameters);
  for (size_t section = 0; section < shares.size(); ++section) {
    ElementRange& share = shares[section];
    const int64_t rank = parameters.replicas(section).rank(), size = parameters.replicas(section).size();
    // With --ckpt-gather rank 0 receives what it does not hold itself.
    if (!checkpoint.ckpt_fully_parallel_save || checkpoint.ckpt_gather) {
      if (rank != 0) share = {};
    } else {
      const int64_t each = (share.end - share.begin) / size;  // sections are padded to a multiple of size
      share = {share.begin + each * rank, share.begin + each * (rank + 1)};
    }
  }
  return shares;
}

// The part of a parameter that is in its section's range.
ElementRange common(const Parameter& parameter, const SectionRanges& ranges) {
  const ElementRange range = ranges[parameter.section];
  return {std::max<int64_t>(0, range.begin - parameter.offset_elems),
          std::min(parameter.size(), range.end - parameter.offset_elems)};
}

// Throws kInvalidArgument if the checkpoint lacks what the optimizer continues from; says what of it is not used.
void require_state_of(const UpdateRule& rule, const OptimizerConfig& config, const ckpt::Source& source) {
  std::string has, unused;
  for (const TensorRole role : core::kOptimizerRoles) {
    if (role == TensorRole::kMaster || !ckpt::has_role(source, role)) continue;
    has += core::cat(has.empty() ? "" : " and ", core::role_name(role));
    if (std::ranges::find(rule.state(), role, &OptimizerState::role) == rule.state().end())
      unused += core::cat(unused.empty() ? "" : " and ", core::role_name(role));
  }
  for (const auto& [role, values] : rule.state()) {
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
void require_state_of_all(const UpdateRule& rule, const ParameterStore& parameters, const TrainerConfig& config,
                          const ckpt::Source& source) {
  const nlohmann::json& common = source.info().common;
  const auto saved = nlohmann::json::json_pointer("/config/optimizer/freeze_parameters");
  const nlohmann::json expression = common.is_object() ? common.value(saved, nlohmann::json()) : nlohmann::json();
  if (!expression.is_string() || expression.get<std::string>().empty()) return;
  const std::vector<std::string> frozen = frozen_parameters(config.optimizer, config.model);
  std::vector<std::string> missing;
  for (const layout::ParameterSpec& spec : parameters.model()) {
    if (spec.is_buffer || std::ranges::binary_search(frozen, spec.key)) continue;
    const auto has = [&](const OptimizerState& kept) { return source.shards().find(spec.key, kept.role).has_value(); };
    if (!std::ranges::all_of(rule.state(), has)) missing.push_back(spec.key);
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
                                  bool with_optimizer, const SectionRanges& alike, bool with_buffers) {
  std::vector<StateBox> boxes;
  for (const ModelBuffer& buffer : parameters.buffers()) {
    if (!with_buffers) break;
    const core::Dims& shape = buffer.spec.global_shape;
    boxes.push_back({{buffer.spec.key, TensorRole::kBuffer, core::DType::kFp32, shape, core::Dims(shape.size()), shape,
                      state.tp_rank() == 0 ? 0 : 1},
                     buffer.values.bytes()});
  }
  for (const Parameter& parameter : parameters.all()) {
    const ElementRange part = common(parameter, alike);
    if (part.begin >= part.end) continue;
    const core::DType dtype = parameter.weight.dtype();
    add_boxes(boxes, state, parameter, TensorRole::kParam, dtype, part.begin, part.end,
              parameter.weight.bytes() + part.begin * core::size_of(dtype), copy_of(parameter));
  }
  if (!with_optimizer) return boxes;
  const SectionRanges owned = owned_elements(optimizer);
  const std::vector<OptimizerState> kept = optimizer.state();
  for (const Parameter& parameter : parameters.all()) {
    const bool distributed = state.config.parallel.use_distributed_optimizer;
    const ElementRange part = common(parameter, distributed ? owned : alike);
    if (!parameter.trains() || part.begin >= part.end) continue;
    const int64_t at = optimizer.owned().state_index(parameter.offset_elems + part.begin);
    for (const auto& [role, values] : kept) {
      add_boxes(boxes, state, parameter, role, core::DType::kFp32, part.begin, part.end, values.bytes() + at * 4,
                copy_of(parameter));
    }
  }
  return boxes;
}

std::vector<core::ShardedTensor> all_shards(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer) {
  std::vector<core::ShardedTensor> shards;
  for (StateBox& box : state_boxes(state, parameters, optimizer, /*with_optimizer=*/true, all_elements(parameters),
                                   /*with_buffers=*/true)) {
    shards.push_back(std::move(box.meta));
  }
  return shards;
}

std::vector<ckpt::ShardData> shards_to_save(const RankState& state, const ParameterStore& parameters,
                                            const Optimizer& optimizer, RankPart part) {
  std::vector<ckpt::ShardData> shards;
  for (StateBox& box :
       state_boxes(state, parameters, optimizer, state.config.checkpoint.save_optim,
                   part == RankPart::kAll ? all_elements(parameters) : share_to_write(state, parameters),
                   part == RankPart::kAll || state.groups.dp_cp.rank() == 0)) {
    shards.push_back({std::move(box.meta), box.data});
  }
  return shards;
}

std::vector<ckpt::ShardData> gradient_shards(const RankState& state, const ParameterStore& parameters,
                                             const Optimizer& optimizer) {
  const bool distributed = state.config.parallel.use_distributed_optimizer;
  const SectionRanges whole = distributed ? owned_elements(optimizer) : share_to_write(state, parameters);
  std::vector<StateBox> boxes;
  for (const Parameter& parameter : parameters.all()) {
    const ElementRange part = common(parameter, whole);
    if (!parameter.trains() || part.begin >= part.end) continue;
    add_boxes(boxes, state, parameter, TensorRole::kBuffer, core::DType::kFp32, part.begin, part.end,
              parameter.main_grad.bytes() + part.begin * int64_t{sizeof(float)}, copy_of(parameter));
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
  request.info.common = std::move(common);
  optimizer.await_weights();
  optimizer.join_master();
  request.shards = shards_to_save(state, parameters, optimizer, part);
  return request;
}

Progress load_state(const RankState& state, ParameterStore& parameters, Optimizer& optimizer, ckpt::Source& source,
                    RankPart part, bool with_optimizer, const std::function<bool()>& stopped) {
  if (with_optimizer) {
    require_state_of(optimizer.rule(), state.config.optimizer, source);
    if (part == RankPart::kShare) require_state_of_all(optimizer.rule(), parameters, state.config, source);
  }
  optimizer.join_master();
  std::vector<ckpt::ShardTarget> targets;
  for (StateBox& box : state_boxes(state, parameters, optimizer, /*with_optimizer=*/true, all_elements(parameters),
                                   /*with_buffers=*/true)) {
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
  optimizer.split_master();
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
