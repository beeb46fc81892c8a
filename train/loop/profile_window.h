// The --profile* flags: opens the recorder of the chosen ranks for the iterations [start, end), and measures the clocks
// of all ranks at both ends (traces.md 7.3).
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "core/arena.h"
#include "core/comm/communicator.h"
#include "train/config.h"

namespace ms::train {

class ProfileWindow {
 public:
  using Convert = std::function<void(const std::filesystem::path& native, const std::string& format)>;

  // recorder, world and arena are not owned. Throws kInvalidArgument if --profile is on and there is no recorder.
  ProfileWindow(const ProfilingConfig& config, core::Communicator& world, core::Arena& arena,
                core::trace::Recorder* recorder, Convert convert);
  ~ProfileWindow();

  // Collective, with the number of steps done. Steps of the window are those that begin in it.
  void before_step(int64_t completed);
  void after_step(int64_t completed);
  void close();  // if it is still open: the run ended inside it

 private:
  bool records_here() const;

  const ProfilingConfig& config_;
  core::Communicator& world_;
  core::Arena& arena_;
  core::trace::Recorder* recorder_;
  Convert convert_;
  bool open_ = false;
};

}  // namespace ms::train
