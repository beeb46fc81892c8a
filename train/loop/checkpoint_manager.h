// Decides when a run writes checkpoints of both kinds, persistent (--save) and node-local (--non-persistent-ckpt-type
// local), what happens to a save that is due while the previous one is unfinished (--ckpt-overlap), and to the run when
// a save has failed (--ckpt-on-error).
//
// It needs no messages of its own between the trainers of the ranks: the status of each rank's saves (local_status())
// rides on the per-step allreduce, and its sum over all ranks is given to set_global_status().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/local.h"
#include "ckpt/writer.h"
#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/layout/rank_grid.h"
#include "core/thread_pool.h"
#include "core/trace/recorder.h"
#include "train/config.h"
#include "train/state.h"

namespace ms::train {

class CheckpointManager {
 public:
  // What the flags do not say. Nothing is owned; all of it outlives the object.
  struct Services {
    core::Arena* arena = nullptr;
    core::ThreadPool* pool = nullptr;
    core::trace::Recorder* recorder = nullptr;  // may be null
    std::vector<std::string> writer_command;    // of --ckpt-writer process: ckpt::Saver::Options::writer_command
    std::function<bool()> stopped;              // ckpt::LocalTier::Options::stopped
  };
  using ShardsOf = std::function<std::vector<ckpt::ShardData>(RankPart)>;
  using RequestOf = std::function<ckpt::SaveRequest(RankPart)>;

  // config must outlive the object. Nothing is saved before one of the two is opened.
  CheckpointManager(const CheckpointConfig& config, const layout::RankGrid& grid, int rank, Services services);

  // Collective, each over a communicator for its use only, not owned; throw as ckpt::Saver and ckpt::LocalTier.
  void open_persistent(core::Communicator& comm);
  ckpt::LocalTier& open_local(core::Communicator& comm);

  // Sets the memory of the snapshots aside where they come again and again: else the first one would stop the training
  // for its pages. Local.
  void reserve(const ShardsOf& shards);

  // Before the state changes: waits for copies under way.
  void before_update();

  // What this rank knows of its saves, and what that adds up to over all ranks: 0 means on none.
  static constexpr int kNumStatuses = 4;
  std::array<double, kNumStatuses> local_status() const;
  void set_global_status(std::span<const double, kNumStatuses> sums);

  // Collective from here on, after set_global_status().
  // Waits for the saves of a kind of which any rank has heard that one failed.
  void finish_failed();
  // Of the two kinds one at a time; the persistent one is for both.
  void save_if_due(int64_t iteration, const RequestOf& request);
  // At the end of the run: waits for what is under way; before that, with `save`, for what the last step changed.
  void close(bool save, int64_t iteration, const RequestOf& request);

  std::filesystem::path last_path() const;  // of the last persistent one that this rank knows is committed; empty: none

 private:
  void complete(ckpt::Saver::Options& options);
  void save_persistent(int64_t iteration, const RequestOf& request);
  void save_local(int64_t iteration, const RequestOf& request);
  bool is_skipped(int64_t iteration, const char* where) const;
  void outlive_errors(const std::function<void()>& saving) const;
  void finish_persistent();
  void finish_local();

  const CheckpointConfig& config_;
  const layout::RankGrid grid_;
  const int rank_;
  const Services services_;
  std::atomic<int64_t> state_version_{0};  // updates of the optimizer
  std::unique_ptr<ckpt::Saver> saver_;
  std::unique_ptr<ckpt::LocalTier> local_;
  int64_t last_saved_ = -1;
  bool unfinished_ = false, failed_ = false;              // on any rank, as of the last set_global_status()
  bool local_unfinished_ = false, local_failed_ = false;  // the same of local saves
};

}  // namespace ms::train
