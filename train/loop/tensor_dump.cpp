#include "train/loop/tensor_dump.h"

#include <algorithm>

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

// Refuses a folder of checkpoints, and a filter that leaves nothing.
void check(const RankState& state, const TensorRecorder& recorder) {
  const std::string& folder = state.config.logger.save_tensors_dir;
  core::collectively(state.groups.world, "open --save-tensors-dir", [&] {
    ckpt::require_root_of_kind(folder, /*recording=*/true, "--save-tensors-dir");
    const std::vector<std::string> names = layout::recorded_tensors(state.config.model);
    if (std::ranges::any_of(names, [&](const std::string& name) { return recorder.wants(name); })) return;
    throw core::Error(
        core::ErrorCode::kInvalidArgument,
        core::cat("--save-tensors-filter ", state.config.logger.save_tensors_filter,
                  ": no tensor has such a name; the first ones are ", names[0], ", ", names[1], ", ", names[2]));
  });
}

ckpt::Saver::Options options(const RankState& state, const TensorRecorder& recorder) {
  check(state, recorder);
  ckpt::Saver::Options options;
  options.root = state.config.logger.save_tensors_dir;
  options.async = false;
  options.producer = "mstrain --save-tensors";
  options.arena = &state.ops.arena;
  return options;
}

}  // namespace

TensorDump::TensorDump(RankState& state, const ParameterStore& parameters, const Optimizer& optimizer)
    : state_(state),
      parameters_(parameters),
      optimizer_(optimizer),
      recorder_({.tp_size = state.tp_size(),
                 .tp_rank = state.tp_rank(),
                 .sequence_parallel = state.sequence_parallel(),
                 .vocab_size = state.config.model.vocab_size},
                core::user_expression(state.config.logger.save_tensors_filter, /*ignore_case=*/false,
                                      core::ErrorCode::kInvalidArgument, "--save-tensors-filter")),
      saver_(state.groups.world, options(state, recorder_)) {}

void TensorDump::begin_step(int64_t iteration, int64_t first_sample, int64_t samples) {
  iteration_ = iteration;
  kinds_ = saved_tensor_kinds(state_.config.logger, iteration);
  if (!kinds_.any()) return;
  recorder_.begin({.outputs = kinds_.outputs,
                   .gradients = kinds_.output_gradients,
                   .first_sample = first_sample,
                   .samples = samples,
                   .perturbation = state_.config.logger.save_tensors_perturbation});
}

void TensorDump::end_step() {
  if (!kinds_.any()) return;
  const std::vector<TensorRecorder::Recorded> recorded = recorder_.take();
  ckpt::SaveRequest request;
  request.info.iteration = iteration_;
  request.info.layout = layout::layout_to_json(state_.layout());
  request.info.model = state_.config.model;
  request.info.common = {{"iteration", iteration_}, {ckpt::kRecordingMark, true}};
  for (const TensorRecorder::Recorded& one : recorded) request.shards.push_back({one.meta, one.data.data()});
  if (kinds_.weight_gradients) {
    for (ckpt::ShardData& shard : gradient_shards(state_, parameters_, optimizer_)) {
      if (recorder_.wants(shard.meta.key)) request.shards.push_back(std::move(shard));
    }
  }
  saver_.save(request);
  core::log_info("train.tensors", core::cat("iteration ", iteration_, ": what modules computed is in ",
                                            state_.config.logger.save_tensors_dir));
}

}  // namespace ms::train
