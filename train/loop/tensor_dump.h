// Writes what modules have computed in a step (--save-tensors): a generation of the native checkpoint format per
// iteration, whose tensors are those of core/layout/recorded_tensors.h. msckpt reads it as any set of tensors.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ckpt/writer.h"
#include "train/model/tensor_recorder.h"
#include "train/optim/optimizer.h"

namespace ms::train {

class TensorDump {
 public:
  // All of it outlives the object. Collective: opens --save-tensors-dir. Throws as ckpt::Saver.
  TensorDump(RankState& state, const ParameterStore& parameters, const Optimizer& optimizer);
  TensorRecorder& recorder() { return recorder_; }

  // samples: of the global batch, the first is first_sample. Nothing unless the iteration is to be written.
  void begin_step(int64_t iteration, int64_t first_sample, int64_t samples);
  // Between Optimizer::finish_gradients and its update; writes, if the step is to be written. Collective.
  void end_step();

 private:
  RankState& state_;
  const ParameterStore& parameters_;
  const Optimizer& optimizer_;
  TensorRecorder recorder_;
  ckpt::Saver saver_;
  int64_t iteration_ = 0;  // that is recorded
  SavedTensorKinds kinds_;
};

}  // namespace ms::train
