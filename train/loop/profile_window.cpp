#include "train/loop/profile_window.h"

#include <algorithm>
#include <cstdio>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/log.h"
#include "core/trace/clock.h"

namespace ms::train {

ProfileWindow::ProfileWindow(const ProfilingConfig& config, core::Communicator& world, core::Arena& arena,
                             core::trace::Recorder* recorder, Convert convert)
    : config_(config), world_(world), arena_(arena), recorder_(recorder), convert_(std::move(convert)) {
  if (config.profile && recorder == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "--profile: this run has no recorder");
  }
}

ProfileWindow::~ProfileWindow() { arena_.set_observer(nullptr); }

bool ProfileWindow::records_here() const {
  const auto& ranks = config_.profile_ranks;
  return std::any_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return rank == -1 || rank == world_.rank(); });
}

void ProfileWindow::before_step(int64_t completed) {
  if (!config_.profile || open_ || completed < config_.profile_step_start || completed >= config_.profile_step_end)
    return;
  core::collectively(world_, "open trace", [&] {
    if (!records_here()) return;
    core::trace::Options options;
    options.rank = world_.rank();
    options.world_size = world_.size();
    options.level = config_.profile_level == "level2"   ? core::trace::Level::kLevel2
                    : config_.profile_level == "level1" ? core::trace::Level::kLevel1
                                                        : core::trace::Level::kLevel0;
    options.with_cpu = config_.profile_with_cpu;
    options.with_stack = config_.profile_with_stack;
    options.with_memory = config_.profile_with_memory;
    options.record_shapes = config_.profile_record_shapes;
    options.save_path = config_.profile_save_path;
    recorder_->start(options);
  });
  open_ = true;
  core::trace::record_clock_offset(world_, recorder_);
  if (recorder_->active() && config_.profile_with_memory) arena_.set_observer(recorder_);
}

void ProfileWindow::after_step(int64_t completed) {
  if (open_ && completed >= config_.profile_step_end) close();
}

void ProfileWindow::close() {
  if (!open_) return;
  open_ = false;
  core::trace::record_clock_offset(world_, recorder_);
  arena_.set_observer(nullptr);
  core::collectively(world_, "close trace", [&] {
    if (!recorder_->active()) return;
    recorder_->stop();
    char name[32];
    std::snprintf(name, sizeof name, "rank_%05d.mstrace", world_.rank());
    const std::filesystem::path native = std::filesystem::path(config_.profile_save_path) / name;
    core::log_info("train.profile", core::cat("trace of iterations ", config_.profile_step_start, " to ",
                                              config_.profile_step_end, " in ", native.string()));
    if (config_.profile_format != "native") convert_(native, config_.profile_format);
  });
}

}  // namespace ms::train
