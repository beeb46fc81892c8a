#include "train/loop/tensor_dump.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "ckpt/commit.h"
#include "ckpt/recording.h"
#include "core/comm/agree.h"
#include "core/error.h"
#include "core/expression.h"
#include "core/layout/model_layout.h"
#include "core/layout/recorded_tensors.h"
#include "core/log.h"
#include "train/state.h"

namespace ms::train {
namespace {

constexpr const char* kWhere = "train.tensors";

// Listed iterations of which this run can record something.
bool has_iteration_left(const TrainerConfig& config, int64_t completed) {
  const SaveTensorsConfig& c = config.logger;
  if (c.save_tensors.empty()) return true;
  if (c.save_activations_interval > 0 || c.save_dgrads_interval > 0 || c.save_wgrads_interval > 0) return true;
  return std::ranges::any_of(c.save_tensors, [&](int64_t iteration) {
    return iteration > completed && iteration <= config.training.train_iters &&
           std::ranges::count(config.training.iterations_to_skip, iteration) == 0;
  });
}

std::string list_text(const std::vector<int64_t>& iterations) {
  std::string text;
  for (const int64_t iteration : iterations) text += core::cat(text.empty() ? "" : " ", iteration);
  return text;
}

void check_names(const TrainerConfig& config, const TensorRecorder& recorder) {
  const bool in_chunks = config.training.loss_chunk_size > 0;
  std::vector<std::string> names = layout::recorded_tensors(config.model);
  if (in_chunks)
    std::erase_if(names,
                  [](const std::string& name) { return name == "output_layer:output" || name == "output_layer:grad"; });
  if (std::ranges::any_of(names, [&](const std::string& name) { return recorder.wants(name); })) return;
  throw core::Error(core::ErrorCode::kInvalidArgument,
                    core::cat("--save-tensors-filter ", config.logger.save_tensors_filter,
                              ": no tensor has such a name; the first ones are ", names[0], ", ", names[1], ", ",
                              names[2], in_chunks ? " (--loss-chunk-size leaves no output_layer to record)" : ""));
}

// Refuses a folder of checkpoints, a filter that leaves nothing, and iterations that do not come any more.
void check(const RankState& state, const TensorRecorder& recorder, int64_t completed) {
  const TrainerConfig& config = state.config;
  const std::string& folder = config.logger.save_tensors_dir;
  core::collectively(state.groups.world, "open --save-tensors-dir", [&] {
    ckpt::require_root_of_kind(folder, /*recording=*/true, "--save-tensors-dir");
    check_names(config, recorder);
    if (!has_iteration_left(config, completed))
      throw core::Error(core::ErrorCode::kInvalidArgument,
                        core::cat("--save-tensors ", list_text(config.logger.save_tensors),
                                  ": nothing to record, the run begins with iteration ", completed + 1,
                                  config.training.iterations_to_skip.empty() ? "" : " and has --iterations-to-skip"));
    if (state.groups.world.rank() != 0 || !std::filesystem::is_directory(folder)) return;
    if (const auto generations = ckpt::list_generations(folder); !generations.empty())
      core::log_warning(kWhere,
                        core::cat("--save-tensors-dir ", folder, ": it holds recordings already, up to iteration ",
                                  generations.front().iteration, "; if they are of another run, name another folder"));
    if (config.training.loss_chunk_size > 0)
      core::log_info(kWhere, "output_layer is not recorded: --loss-chunk-size never has all its logits");
  });
}

ckpt::Saver open_saver(const RankState& state, const TensorRecorder& recorder, int64_t completed) {
  check(state, recorder, completed);
  ckpt::Saver::Options options;
  options.root = state.config.logger.save_tensors_dir;
  options.async = false;
  options.logs_commits = false;
  options.producer = "mstrain --save-tensors";
  options.arena = &state.ops.arena;
  try {
    return ckpt::Saver(state.groups.world, options);
  } catch (const core::AgreedError& e) {
    throw core::AgreedError(e.within("--save-tensors-dir"));
  }
}

}  // namespace

TensorDump::TensorDump(RankState& state, const ParameterStore& parameters, const Optimizer& optimizer, Run run)
    : state_(state),
      parameters_(parameters),
      optimizer_(optimizer),
      recorder_({.tp_size = state.tp_size(),
                 .tp_rank = state.tp_rank(),
                 .sequence_parallel = state.sequence_parallel(),
                 .vocab_size = state.config.model.vocab_size},
                core::user_expression(state.config.logger.save_tensors_filter, /*ignore_case=*/false,
                                      core::ErrorCode::kInvalidArgument, "--save-tensors-filter")),
      saver_(open_saver(state, recorder_, run.completed)),
      config_(std::move(run.config)) {}

void TensorDump::begin_step(const Step& step) {
  step_ = step;
  kinds_ = saved_tensor_kinds(state_.config.logger, step.iteration);
  if (!kinds_.any()) return;
  recorder_.begin({.outputs = kinds_.outputs,
                   .gradients = kinds_.output_gradients,
                   .first_sample = step.first_sample,
                   .samples = step.samples,
                   .gradient_factor = 1 / (step.loss_scale * state_.replicas_averaged()),
                   .perturbation = state_.config.logger.save_tensors_perturbation});
}

void TensorDump::end_step(double grad_norm) {
  if (!kinds_.any()) return;
  const std::vector<TensorRecorder::Recorded> recorded = recorder_.take();
  if (!std::isfinite(grad_norm))
    core::log_warning(kWhere, core::cat("iteration ", step_.iteration, " was skipped, its gradients are not finite",
                                        step_.loss_scale == 1 ? ""
                                                              : core::cat(" at the loss scale ", step_.loss_scale,
                                                                          ": record a later one, or begin with another "
                                                                          "--initial-loss-scale")));
  ckpt::SaveRequest request;
  request.info.iteration = step_.iteration;
  request.info.layout = layout::layout_to_json(state_.layout());
  request.info.model = state_.config.model;
  request.info.common = {
      {"iteration", step_.iteration},
      {"config", config_},
      {ckpt::kRecordingMark, ckpt::recording_mark({.perturbation = state_.config.logger.save_tensors_perturbation,
                                                   .dtype = state_.config.params_dtype()})}};
  for (const TensorRecorder::Recorded& one : recorded) request.shards.push_back({one.meta, one.data.data()});
  std::vector<std::vector<float>> unscaled;  // gradients of weights
  if (kinds_.weight_gradients) {
    for (ckpt::ShardData& shard : gradient_shards(state_, parameters_)) {
      if (!recorder_.wants(shard.meta.key)) continue;
      if (step_.loss_scale != 1) {
        const auto* values = reinterpret_cast<const float*>(shard.data);
        std::vector<float>& own = unscaled.emplace_back(values, values + core::num_elements(shard.meta.local_shape));
        for (float& value : own) value = static_cast<float>(value / step_.loss_scale);
        shard.data = reinterpret_cast<const std::byte*>(own.data());
      }
      request.shards.push_back(std::move(shard));
    }
  }
  write(request);
}

void TensorDump::write(const ckpt::SaveRequest& request) {
  try {
    saver_.save(request);
  } catch (const core::AgreedError& e) {
    const core::Error named = e.within("--save-tensors-dir");
    if (state_.config.checkpoint.ckpt_on_error == "stop") throw core::AgreedError(named);
    core::log_warning(kWhere, core::cat(named.what(), "; the run goes on (--ckpt-on-error continue)"));
    return;
  }
  written_.insert(step_.iteration);
  core::log_info(
      kWhere, core::cat("iteration ", step_.iteration, ": what modules computed is in ", saver_.last_path().string()));
}

void TensorDump::close(int64_t iteration) const {
  std::vector<int64_t> missing;
  for (const int64_t listed : state_.config.logger.save_tensors) {
    if (!written_.contains(listed)) missing.push_back(listed);
  }
  if (!missing.empty())
    core::log_warning(kWhere, core::cat("--save-tensors ", list_text(missing),
                                        ": not recorded, the run ends with iteration ", iteration));
}

}  // namespace ms::train
