#include "train/loop/step_agreement.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <span>

#include "core/error.h"
#include "core/signals.h"

namespace ms::train {
namespace {

// The signals that may end a run, as the ranks tell each other: one rank's is every rank's.
constexpr std::array<int, 5> kEndingSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

}  // namespace

StepFlops StepAgreement::exchange(core::Communicator& world, CheckpointManager& saves, const StepFlops& flops,
                                  bool failed) {
  constexpr size_t kFlops = 2;
  std::array<double, kFlops + kEndingSignals.size() + 3 + CheckpointManager::kNumStatuses> sums{};
  const auto signals = std::span(sums).subspan<kFlops, kEndingSignals.size()>();
  const auto rest = std::span(sums).subspan<kFlops + kEndingSignals.size()>();
  sums[0] = flops.executed, sums[1] = flops.hidden;
  for (size_t i = 0; i < signals.size(); ++i) signals[i] = core::termination_signal() == kEndingSignals[i] ? 1 : 0;
  const double minutes = static_cast<double>(core::trace::now_ns() - began_ns_) * 1e-9 / 60;
  const double limit = config_.training.exit_duration_in_mins;
  rest[0] = limit > 0 && minutes > limit ? 1 : 0;
  rest[1] = core::counted_signals() > trace_requests_ ? 1 : 0;
  rest[2] = failed ? 1 : 0;
  std::ranges::copy(saves.local_status(), rest.begin() + 3);
  if (world.size() > 1) world.allreduce(sums);
  for (size_t i = signals.size(); i > 0; --i) {
    if (signals[i - 1] > 0) stop_signal_ = kEndingSignals[i - 1];
  }
  out_of_time_ = rest[0] > 0;
  trace_requested_ = rest[1] > 0;
  step_failed_ = rest[2] > 0;
  saves.set_global_status(rest.last<CheckpointManager::kNumStatuses>());
  return {.executed = sums[0], .hidden = sums[1]};
}

bool StepAgreement::takes_trace_request() {
  if (!trace_requested_) return false;
  ++trace_requests_;
  trace_requested_ = false;
  return true;
}

std::string StepAgreement::exit_reason(int64_t iteration) const {
  const int64_t every = config_.training.exit_interval;
  if (stop_signal_ != 0) return core::cat("signal ", stop_signal_);
  if (out_of_time_) return core::cat("--exit-duration-in-mins ", config_.training.exit_duration_in_mins);
  if (every > 0 && iteration % every == 0) return core::cat("--exit-interval ", every);
  return "";
}

bool StepAgreement::saves_at_exit() const {
  return stop_signal_ == 0 ||
         (config_.training.exit_signal_handler && stop_signal_ == core::parse_signal(config_.training.exit_signal));
}

}  // namespace ms::train
