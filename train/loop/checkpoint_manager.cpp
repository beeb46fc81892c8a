#include "train/loop/checkpoint_manager.h"

#include <functional>
#include <utility>

#include "ckpt/recording.h"
#include "core/comm/agree.h"
#include "core/log.h"
#include "core/trace/span.h"
#include "train/loop/checkpoint_options.h"

namespace ms::train {

using core::cat;
using core::trace::Category;
using core::trace::Span;

namespace {

// Errors of opening a folder, with the flag that names it.
void name_flag(const char* flag, const std::function<void()>& open) {
  try {
    open();
  } catch (const core::AgreedError& e) {
    throw core::AgreedError(e.within(flag));
  }
}

}  // namespace

CheckpointManager::CheckpointManager(const CheckpointConfig& config, const layout::RankGrid& grid, int rank,
                                     Services services)
    : config_(config), grid_(grid), rank_(rank), services_(std::move(services)) {}

void CheckpointManager::complete(ckpt::Saver::Options& options) {
  options.producer = "mstrain";
  options.state_version = &state_version_;
  options.arena = services_.arena;
  options.pool = services_.pool;
  options.recorder = services_.recorder;
}

void CheckpointManager::open_persistent(core::Communicator& comm) {
  core::collectively(comm, "open --save", [&] { ckpt::require_root_of_kind(config_.save, false, "--save"); });
  ckpt::Saver::Options options = saver_options(config_, grid_);
  complete(options);
  if (config_.ckpt_writer == "process") options.writer_command = services_.writer_command;
  name_flag("--save", [&] { saver_ = std::make_unique<ckpt::Saver>(comm, std::move(options)); });
}

ckpt::LocalTier& CheckpointManager::open_local(core::Communicator& comm) {
  ckpt::LocalTier::Options options = local_options(config_, grid_);
  complete(options.writing);
  options.stopped = services_.stopped;
  name_flag("--non-persistent-local-ckpt-dir",
            [&] { local_ = std::make_unique<ckpt::LocalTier>(comm, std::move(options)); });
  return *local_;
}

void CheckpointManager::reserve(const ShardsOf& shards) {
  if (saver_ != nullptr && config_.save_interval > 0) saver_->reserve(shards(RankPart::kShare));
  if (local_ != nullptr && config_.non_persistent_save_interval > 0) local_->reserve(shards(RankPart::kAll));
}

void CheckpointManager::before_update() {
  if (saver_ != nullptr) saver_->before_update();
  if (local_ != nullptr) local_->before_update();
  state_version_.fetch_add(1);
}

std::array<double, CheckpointManager::kNumStatuses> CheckpointManager::local_status() const {
  using Status = ckpt::Saver::Status;
  const Status persistent = saver_ != nullptr ? saver_->status() : Status{};
  const Status local = local_ != nullptr ? local_->status() : Status{};
  // Rank 0's persistent save is unfinished until all ranks' parts are committed.
  return {rank_ == 0 && persistent.unfinished ? 1.0 : 0.0, persistent.failed ? 1.0 : 0.0, local.unfinished ? 1.0 : 0.0,
          local.failed ? 1.0 : 0.0};
}

void CheckpointManager::set_global_status(std::span<const double, kNumStatuses> sums) {
  unfinished_ = sums[0] > 0;
  failed_ = sums[1] > 0;
  local_unfinished_ = sums[2] > 0;
  local_failed_ = sums[3] > 0;
  if (local_ != nullptr && !local_unfinished_ && !local_failed_) local_->confirm();
}

void CheckpointManager::finish_failed() {
  if (failed_) finish_persistent();
  if (local_failed_) finish_local();
}

void CheckpointManager::finish_persistent() {
  failed_ = false;
  outlive_errors([&] { saver_->finish(); });
}

void CheckpointManager::finish_local() {
  local_failed_ = local_unfinished_ = false;
  outlive_errors([&] { local_->finish(); });
}

// A failed save ends the run, or is told and passed over.
void CheckpointManager::outlive_errors(const std::function<void()>& saving) const {
  try {
    saving();
  } catch (const core::AgreedError& e) {
    if (config_.ckpt_on_error == "stop") throw;
    core::log_warning("train.save", cat(e.what(), "; the run goes on (--ckpt-on-error continue)"));
  }
}

// Of a save while the one before is not finished.
bool CheckpointManager::is_skipped(int64_t iteration, const char* where) const {
  if (config_.ckpt_overlap != "skip") return false;
  core::log_warning("train.save", cat("iteration ", iteration, " is not saved", where,
                                      ": the save before is not finished (--ckpt-overlap skip)"));
  return true;
}

void CheckpointManager::save_persistent(int64_t iteration, const RequestOf& request) {
  if (unfinished_ && is_skipped(iteration, "")) return;
  Span span(services_.recorder, Category::kUserAnnotation, "save");
  const ckpt::SaveRequest state = request(RankPart::kShare);
  outlive_errors([&] { saver_->save(state); });
  const double waited_ms = saver_->last_wait_seconds() * 1e3;
  core::log_info("train.save",
                 cat("saving iteration ", iteration, " to ", config_.save,
                     " | snapshot: ", saver_->last_bytes() / 1000000, " MB in ", saver_->last_blocking_seconds() * 1e3,
                     " ms", waited_ms < 1 ? "" : cat(", having waited ", waited_ms, " ms for an earlier one")));
  last_saved_ = iteration;
}

// The one before must be whole first: it is what a run goes on from that is killed meanwhile.
void CheckpointManager::save_local(int64_t iteration, const RequestOf& request) {
  if (local_unfinished_ && is_skipped(iteration, " locally")) return;
  Span span(services_.recorder, Category::kUserAnnotation, "save");
  if (local_unfinished_) finish_local();
  const ckpt::SaveRequest state = request(RankPart::kAll);
  outlive_errors([&] { local_->save(state); });
  core::log_info("train.save", cat("saving iteration ", iteration, " to ", config_.non_persistent_local_ckpt_dir,
                                   " (local) | snapshot: ", local_->last_bytes() / 1000000, " MB in ",
                                   local_->last_blocking_seconds() * 1e3, " ms"));
}

void CheckpointManager::save_if_due(int64_t iteration, const RequestOf& request) {
  const auto due = [&](int64_t interval) { return interval > 0 && iteration % interval == 0; };
  if (saver_ != nullptr && due(config_.save_interval)) {
    save_persistent(iteration, request);
  } else if (local_ != nullptr && due(config_.non_persistent_save_interval)) {
    save_local(iteration, request);
  }
}

void CheckpointManager::close(bool save, int64_t iteration, const RequestOf& request) {
  if (local_ != nullptr) finish_local();
  if (saver_ == nullptr) return;
  if (save && last_saved_ != iteration) save_persistent(iteration, request);
  finish_persistent();
}

std::filesystem::path CheckpointManager::last_path() const {
  return saver_ != nullptr && saver_->last_committed() >= 0 ? saver_->last_path() : std::filesystem::path();
}

}  // namespace ms::train
