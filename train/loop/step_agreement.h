// What the ranks tell each other after every step, in one all-reduce: FLOPs, signals, time limit, requests for a trace,
// and the status of saves. What one rank has seen, all know from then on.
#pragma once

#include <cstdint>
#include <string>

#include "core/comm/communicator.h"
#include "core/trace/recorder.h"
#include "train/config.h"
#include "train/loop/checkpoint_manager.h"

namespace ms::train {

struct StepFlops {
  double executed = 0;
  double hidden = 0;  // that the model would need if packed documents saw each other
};

class StepAgreement {
 public:
  // config must outlive the object. The run's time limit counts from here.
  explicit StepAgreement(const TrainerConfig& config) : config_(config) {}

  // Collective: after a step, a batch of an evaluation or a generated token. Returns the sum of the ranks' FLOPs.
  // failed: this rank's part of the step has.
  StepFlops exchange(core::Communicator& world, CheckpointManager& saves, const StepFlops& flops, bool failed = false);

  bool step_failed() const { return step_failed_; }  // of any rank
  int stop_signal() const { return stop_signal_; }   // that has come to any rank; 0: none
  // Whether any rank was asked for a trace (SIGUSR2) since the last call that returned true.
  bool takes_trace_request();
  // Why the run ends at this iteration, before --train-iters; empty if it goes on. Megatron's order: signal, duration,
  // interval.
  std::string exit_reason(int64_t iteration) const;
  // A signal ends the run as it stands, unless it is the one that --exit-signal-handler answers with a save.
  bool saves_at_exit() const;

 private:
  const TrainerConfig& config_;
  const int64_t began_ns_ = core::trace::now_ns();
  int stop_signal_ = 0;
  bool out_of_time_ = false;
  bool step_failed_ = false;
  bool trace_requested_ = false;
  int64_t trace_requests_ = 0;  // answered
};

}  // namespace ms::train
