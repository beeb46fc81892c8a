// Node-local checkpoints: between persistent checkpoints each rank keeps its newest state in a folder of its own node,
// and other ranks keep replicas of it (Megatron's --non-persistent-ckpt-type local, --replication).
//
//   <root>/rank_00003/iter_0000100/   the part of rank 3: a complete native checkpoint with hashes
//
// A part contains every shard that its rank needs, each as a whole tensor (own_tensors), including data that other
// ranks hold too. So a rank restores from its part alone, whichever other ranks are lost. A Saver (writer.h) over that
// one rank writes the part; after its commit, a thread of this object exchanges parts with the ranks of its clique (r,
// r + jump, .., in groups of factor, as nvidia-resiliency-ext's CliqueReplicationStrategy) over its own transport.
//
// A save is complete when every rank has committed its part and all replicas. Until the ranks know that (confirm()),
// the previous one is kept; after it, only the newest. So a kill at any moment leaves one iteration that all ranks
// have.
//
//   LocalTier tier(comm, options);
//   if (auto found = tier.find(layout, shards, persistent_iteration)) load from found->source, shards as own_tensors
//   each interval: tier.save(request); later, when no rank's status() is unfinished or failed: tier.confirm()
//   at the end: tier.finish()
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "ckpt/source.h"
#include "ckpt/writer.h"
#include "core/comm/communicator.h"
#include "core/sharded_tensor.h"

namespace ms::ckpt {

// The boxes as whole tensors: global_shape becomes local_shape, and the second and further boxes of a tensor get their
// own keys, NAME@1, ... Two lists that differ only in what is replaced here get the same names.
std::vector<core::ShardedTensor> own_tensors(std::span<const core::ShardedTensor> boxes);

class LocalTier {
 public:
  struct Options {
    std::filesystem::path root;  // of this node; ranks may share it
    // How parts are written: memory, threads, producer. root, retention, full_every, gather and writer_command have no
    // effect: a thread writes each part in full.
    Saver::Options writing;
    int replication_jump = 1;
    int replication_factor = 1;                       // ranks that store a part, including its owner; 1: no replicas
    int64_t slice_bytes = int64_t{40} << 20;          // per message; a rank holds two
    GatherProgress progress = GatherProgress::kAuto;  // who moves the messages
    std::function<bool()> stopped;  // polled while parts are checked; if true, find() throws kIo. May be empty
  };

  // comm: over all ranks, used only by this object; not owned. Collective. Throws (on all ranks) as Saver.
  LocalTier(core::Communicator& comm, Options options);
  // Waits for this rank's thread, as ~Saver. Never throws.
  ~LocalTier();
  LocalTier(const LocalTier&) = delete;
  LocalTier& operator=(const LocalTier&) = delete;

  struct Found {
    int64_t iteration = 0;
    std::unique_ptr<Source> source;  // this rank's part
    int fetched = 0;                 // parts that came from other ranks, summed over all ranks
  };
  // The newest checkpoint with an iteration above newer_than that was saved with this layout and these shards of this
  // rank, and for which some rank's folder has an intact part of every rank. Ranks that lack their part have received
  // it. All hashes of the parts have been checked; a damaged part counts as absent. The log says which checkpoints are
  // skipped, and why. Collective; throws on all ranks.
  std::optional<Found> find(const nlohmann::json& layout, std::span<const core::ShardedTensor> shards,
                            int64_t newer_than);

  // As Saver's. shards: all that this rank needs; replica_id is ignored. The previous save must be finished on all
  // ranks.
  void reserve(std::span<const ShardData> shards);
  void save(const SaveRequest& request);
  void before_update();
  Saver::Status status() const;  // unfinished: the part is not committed, or not replicated
  // Call it when every rank's status() since the last save() is finished and not failed: removes older checkpoints in
  // the background.
  void confirm();
  // Collective; call it when no rank's save is unfinished. Confirms the save, or throws, the same on all ranks, why one
  // failed.
  void finish();

  double last_blocking_seconds() const;  // of the last save()
  int64_t last_bytes() const;            // snapshot of this rank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::ckpt
