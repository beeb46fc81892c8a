#include "train/loop/profile_window.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "core/comm/agree.h"
#include "core/error.h"
#include "core/log.h"
#include "core/trace/clock.h"

namespace ms::train {

StepLabel::StepLabel(int64_t completed) {
  std::snprintf(text_.data(), text_.size(), "ProfilerStep#%" PRId64, completed);
}

ProfileWindow::ProfileWindow(const ProfilingConfig& config, core::Communicator& world, core::Arena& arena,
                             core::trace::Recorder* recorder, Convert convert)
    : config_(config), world_(world), arena_(arena), recorder_(recorder), convert_(std::move(convert)) {
  if (config.profile && recorder == nullptr) {
    throw core::Error(core::ErrorCode::kInvalidArgument, "--profile: this run has no recorder");
  }
}

ProfileWindow::~ProfileWindow() { arena_.set_observer(nullptr); }

bool ProfileWindow::records(int rank) const {
  const auto& ranks = config_.profile_ranks;
  return std::any_of(ranks.begin(), ranks.end(), [&](int64_t chosen) { return chosen == -1 || chosen == rank; });
}

bool ProfileWindow::may_fail(const std::function<void()>& body) const {
  try {
    body();
    return true;
  } catch (const core::AgreedError& e) {
    if (by_flags_) throw;
    core::log_warning("train.profile", core::cat(e.what(), "; the run goes on without this trace"));
    return false;
  }
}

void ProfileWindow::toggle() {
  MS_CHECK(recorder_ != nullptr, "a trace is asked for, and this run has no recorder");
  asked_ = true;
}

void ProfileWindow::before_step(int64_t completed) {
  const bool by_flags = config_.profile && !flags_done_ && completed >= config_.profile_step_start &&
                        completed < config_.profile_step_end;
  if (open_ || !(by_flags || asked_)) return;
  asked_ = false;
  by_flags_ = by_flags;
  open(completed);
}

void ProfileWindow::open(int64_t completed) {
  first_ = completed;
  folder_ = config_.profile_save_path;
  if (!by_flags_) folder_ /= core::cat("from_iteration_", completed);
  const auto start = [&] {
    if (!records(world_.rank())) return;
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
    options.save_path = folder_.string();
    recorder_->start(options);
  };
  if (!may_fail([&] { core::collectively(world_, "open trace", start); })) {
    may_fail([&] { core::collectively(world_, "close trace", [&] { recorder_->stop(); }); });
    return;
  }
  open_ = true;
  int first_rank = 0;
  while (first_rank < world_.size() && !records(first_rank)) ++first_rank;
  if (first_rank == world_.size()) {
    core::log_warning("train.profile", core::cat("--profile-ranks ", config_.profile_ranks, ": no such rank"));
  } else if (const std::string notice = world_.bcast_string(recorder_->notice(), first_rank); !notice.empty()) {
    core::log_info("train.profile", core::cat("--profile-level ", config_.profile_level, ": ", notice));
  }
  core::log_info("train.profile", core::cat("recording from iteration ", completed));
  core::trace::record_clock_offset(world_, recorder_);
  if (recorder_->active() && config_.profile_with_memory) arena_.set_observer(recorder_);
}

void ProfileWindow::after_step(int64_t completed) {
  if (open_ && (asked_ || (by_flags_ && completed >= config_.profile_step_end))) close(completed);
}

void ProfileWindow::close(int64_t completed) {
  if (!open_) return;
  open_ = asked_ = false;
  flags_done_ |= by_flags_;
  core::trace::record_clock_offset(world_, recorder_);
  arena_.set_observer(nullptr);
  const bool kept = may_fail([&] {
    core::collectively(world_, "close trace", [&] {
      if (!recorder_->active()) return;
      recorder_->stop();
      if (config_.profile_format != "native") convert_(recorder_->path(), config_.profile_format);
    });
  });
  if (!kept) return;
  core::log_info("train.profile",
                 core::cat("trace of iterations ", first_, " to ", completed, " in ", folder_.string()));
}

}  // namespace ms::train
