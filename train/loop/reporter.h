// Where the numbers of a run go: log, metrics file and TensorBoard, and what its speed is held against.
#pragma once

#include <string>

#include "core/arena.h"
#include "core/comm/communicator.h"
#include "train/config.h"
#include "train/loop/group_counters.h"
#include "train/loop/metrics.h"
#include "train/loop/roofline.h"
#include "train/loop/step_timers.h"
#include "train/loop/straggler.h"
#include "train/loop/tensorboard.h"
#include "train/ops/context.h"

namespace ms::train {

class Reporter {
 public:
  // All of it outlives the object.
  Reporter(const TrainerConfig& config, const ops::Context& ops, const core::Arena& arena)
      : config_(config), ops_(ops), arena_(arena) {}

  // Collective. The roofline is the same on all ranks: --peak-tflops, or the mean of what they measure.
  void find_roofline(core::Communicator& world);
  // Collective. Opens the files that rank 0 writes. Throws kIo on all ranks.
  void open_files(core::Communicator& world);

  // A line where a step has another batch size than the one before it.
  void batch_size(const StepMetrics& step);
  // Fills MFU and HFU; a warning if the step was faster than the roofline.
  void rate(StepMetrics& step);
  // Collective, after each step. communication: this rank's.
  void step(core::Communicator& world, const StepMetrics& step, const GroupCounters& communication,
            int64_t skipped_train_samples, StepTimers& timers);
  // set: "validation" or "test". Megatron's evaluate_and_print_results, but for the names of the test set's numbers,
  // which are the validation set's there.
  void evaluation(const std::string& set, double loss, int64_t iteration, int64_t consumed_samples);
  void flush() { events_.flush(); }

 private:
  void measure_roofline_again(core::Communicator& world);

  const TrainerConfig& config_;
  const ops::Context& ops_;
  const core::Arena& arena_;
  Roofline roofline_;
  MetricsFile metrics_;
  EventWriter events_;
  LogInterval interval_;  // since the last line
  StragglerLog stragglers_;
  int64_t lines_ = 0;
  int64_t last_batch_size_ = 0;  // 0: no step yet
  std::string text_;             // the last line: its room is used again
};

}  // namespace ms::train
