// The global batch size of each step, as a function of the samples that the run has consumed: constant, or growing
// (--rampup-batch-size, --step-batch-size-schedule). A run that continues from a checkpoint has the same sizes as one
// without a stop, because consumed samples are all that it depends on.
//
// Source: megatron/core/num_microbatches_calculator.py: RampupBatchsizeNumMicroBatchesCalculator of core 0.13, and
// StepBatchsizeNumMicroBatchesCalculator, which replaced it in 2026.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/function_ref.h"

namespace ms::train {

class BatchSizeSchedule {
 public:
  // global_batch_size, at least 1, for the whole run.
  explicit BatchSizeSchedule(int64_t global_batch_size = 1);
  // values: start size, increment, samples of the ramp-up. From the start size to global_batch_size in equal parts of
  // the samples. Throws kInvalidArgument, naming --rampup-batch-size.
  static BatchSizeSchedule ramp_up(std::span<const int64_t> values, int64_t global_batch_size);
  // "0:16 2.4B:320 4.8B:624": from so many tokens on, this batch size. K, M, B and T are 1e3, 1e6, 1e9 and 1e12; ','
  // separates too. Tokens are rounded down to samples of seq_length. Throws kInvalidArgument, naming
  // --step-batch-size-schedule.
  static BatchSizeSchedule by_steps(std::string_view text, int64_t seq_length);

  // The size of the step that begins when `consumed` samples have been consumed.
  int64_t at(int64_t consumed) const;
  int64_t largest() const { return parts_.back().batch_size; }  // sizes never shrink

  // How many steps train_samples make. Constant: full batches only. Ramp-up: the same once it is over, and within it
  // until more than train_samples are consumed. By steps: until train_samples are consumed, the last batch in full.
  // Source: update_train_iters (megatron/training/training.py).
  int64_t iterations(int64_t train_samples) const;
  // The samples that the first `iterations` steps of a run consume.
  int64_t samples_of(int64_t iterations) const;

  // Calls visit(batch size, samples consumed before, steps until it changes) for each size that a run meets from
  // `consumed` samples on, until it returns false. The last one has kNoEnd steps. A size that a large step jumps over
  // is not met.
  static constexpr int64_t kNoEnd = INT64_MAX;
  void each_size(int64_t consumed, core::FunctionRef<bool(int64_t size, int64_t consumed, int64_t steps)> visit) const;

 private:
  struct Part {
    int64_t first_sample = 0;
    int64_t batch_size = 1;
  };
  enum class Kind { kConstant, kRampUp, kSteps };

  size_t part_at(int64_t consumed) const;
  // Steps until more than `samples` are consumed.
  int64_t iterations_beyond(int64_t samples) const;

  Kind kind_ = Kind::kConstant;
  int64_t ramp_up_samples_ = 0;
  std::vector<Part> parts_;  // first_sample: strictly increasing from 0
};

}  // namespace ms::train
