// Opens and closes traces: for the iterations [start, end) of the --profile* flags, on the chosen ranks, and on request
// in a running job (SIGUSR2 to mstrain). At both ends of a trace the clocks of all ranks are compared
// (core/trace/clock.h), so that msprof can put them on one time axis.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/arena.h"
#include "core/comm/communicator.h"
#include "train/config.h"

namespace ms::train {

// Kineto's name of a step, "ProfilerStep#12", without an allocation.
class StepLabel {
 public:
  explicit StepLabel(int64_t completed);  // steps before it
  std::string_view text() const { return text_.data(); }

 private:
  std::array<char, 40> text_{};
};

class ProfileWindow {
 public:
  using Convert = std::function<void(const std::filesystem::path& native, const std::string& format)>;

  // recorder, world and arena are not owned. Throws kInvalidArgument if --profile is on and there is no recorder.
  ProfileWindow(const ProfilingConfig& config, core::Communicator& world, core::Arena& arena,
                core::trace::Recorder* recorder, Convert convert);
  ~ProfileWindow();

  // Ends the trace after this step, or begins one with the next: not that of the flags but one more, in
  // <--profile-save-path>/from_iteration_N. What goes wrong with it is a warning: a job is worth more than its trace.
  void toggle();
  // Collective, with the number of steps done. Steps of the window are those that begin in it.
  void before_step(int64_t completed);
  void after_step(int64_t completed);
  void close(int64_t completed);  // if it is still open: the run ended inside it

 private:
  bool records(int rank) const;
  void open(int64_t completed);
  // body throws on all ranks or on none. False, after a warning, if it threw in a window that was asked for.
  bool may_fail(const std::function<void()>& body) const;

  const ProfilingConfig& config_;
  core::Communicator& world_;
  core::Arena& arena_;
  core::trace::Recorder* recorder_;
  Convert convert_;
  bool open_ = false, asked_ = false;
  bool by_flags_ = true;     // the window that is open, else the last one
  bool flags_done_ = false;  // the flags' window has been recorded
  int64_t first_ = 0;        // step of the open window
  std::filesystem::path folder_;
};

}  // namespace ms::train
