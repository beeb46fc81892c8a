// Writes what modules have computed in a step (--save-tensors): a generation of the native checkpoint format per
// iteration, whose tensors are those of core/layout/recorded_tensors.h. msckpt reads it as any set of tensors.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "ckpt/writer.h"
#include "core/io/json.h"
#include "train/model/tensor_recorder.h"
#include "train/optim/optimizer.h"

namespace ms::train {

class TensorDump {
 public:
  // What a run does that is to be recorded.
  struct Run {
    int64_t completed = 0;  // iterations before the first one of this start
    nlohmann::json config;  // as a checkpoint has it
  };
  struct Step {
    int64_t iteration = 0;
    int64_t first_sample = 0, samples = 0;  // of the global batch
    double loss_scale = 1;                  // recorded gradients are without it
  };

  // The references outlive the object. Collective: opens --save-tensors-dir. Throws as ckpt::Saver, and
  // kInvalidArgument if the folder has checkpoints, or if no tensor or none of the listed iterations is left.
  TensorDump(RankState& state, const ParameterStore& parameters, const Optimizer& optimizer, Run run);
  TensorRecorder& recorder() { return recorder_; }

  // Nothing unless the iteration is to be written.
  void begin_step(const Step& step);
  // Between Optimizer::finish_gradients, which returned grad_norm, and its update; writes, if the step is to be
  // written. Collective. Throws as ckpt::Saver, unless --ckpt-on-error continue makes a warning of it.
  void end_step(double grad_norm);
  // At the end of the run: a warning if listed iterations were not recorded.
  void close(int64_t iteration) const;

 private:
  void write(const ckpt::SaveRequest& request);

  RankState& state_;
  const ParameterStore& parameters_;
  const Optimizer& optimizer_;
  TensorRecorder recorder_;
  ckpt::Saver saver_;
  nlohmann::json config_;
  Step step_;  // that is recorded
  SavedTensorKinds kinds_;
  std::set<int64_t> written_;  // iterations
};

}  // namespace ms::train
