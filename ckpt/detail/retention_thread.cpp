#include "ckpt/detail/retention_thread.h"

#include <chrono>

#include "core/error.h"
#include "core/log.h"

namespace ms::ckpt {
namespace {

namespace fs = std::filesystem;

void apply(const fs::path& root, const fs::path& generation, const Retention& retention) {
  try {
    const Manifest manifest = check_generation(generation);
    const Generation newest{generation, manifest.info.iteration, manifest.attempt};
    for (const Generation& old : superseded(root, newest, retention)) {
      remove_generation(root, old);
      core::log_info("ckpt.retention", core::cat("removed ", old.path.string()));
    }
  } catch (const core::Error& e) {
    core::log_warning("ckpt.retention", core::cat("older checkpoints were not removed: ", e.what()));
  }
}

}  // namespace

RetentionThread::~RetentionThread() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RetentionThread::committed(const fs::path& root, const fs::path& generation, const Retention& retention) {
  if (retention.keeps_all()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !commit_; });
  commit_ = Commit{root, generation, retention};
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

bool RetentionThread::wait(double limit_s) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(limit_s), [&] { return !commit_; });
}

void RetentionThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || commit_; });
    if (!commit_) return;
    const Commit commit = *commit_;
    lock.unlock();
    apply(commit.root, commit.generation, commit.retention);
    lock.lock();
    commit_.reset();
    changed_.notify_all();
  }
}

}  // namespace ms::ckpt
