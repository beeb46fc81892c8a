// The node-local tier: between persistent checkpoints each rank keeps its newest state in a folder of its own node, and
// other ranks keep replicas of it (Megatron's --non-persistent-ckpt-type local, --replication).
//
//   <root>/rank_00003/iter_0000100/   the part of rank 3: a native checkpoint of its own, whole and hashed
//
// A part has every shard that its rank needs, each as a whole tensor (own_tensors): also what other ranks hold alike,
// so that a rank restores from its part alone, whichever of the others are lost. Writing is a Saver's (writer.h) over
// that rank alone; when it has committed, a thread of this object exchanges parts with the ranks of its clique (r, r +
// jump,
// .., in groups of factor, as nvidia-resiliency-ext's CliqueReplicationStrategy), over a transport of its own.
//
// A save is whole when every rank has committed its part and all replicas: until the ranks know that (confirm()), the
// one before is kept. Then nothing else is. So a kill at any moment leaves one iteration that all ranks have.
//
//   LocalTier tier(comm, options);
//   if (auto found = tier.find(layout, shards, persistent_iteration)) load from found->source, shards as own_tensors
//   each interval: tier.save(request); later, when no rank's status() says unfinished or failed: tier.confirm()
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

// The same boxes as whole tensors: global_shape is local_shape, and the second and further boxes of a tensor have keys
// of their own, NAME@1, ... Boxes that compare equal but for what is replaced, in the same order, have the same names.
std::vector<core::ShardedTensor> own_tensors(std::span<const core::ShardedTensor> boxes);

class LocalTier {
 public:
  struct Options {
    std::filesystem::path root;  // of this node; ranks may share it
    // How parts are written, and memory, threads and who it is. Its root, retention, full_every, gather and
    // writer_command have no effect: a part is written whole, by a thread.
    Saver::Options writing;
    int replication_jump = 1;
    int replication_factor = 1;                       // ranks that have a part, its own among them; 1: no replicas
    int64_t slice_bytes = int64_t{40} << 20;          // of one message; a rank holds two
    GatherProgress progress = GatherProgress::kAuto;  // who moves the messages
    std::function<bool()> stopped;  // asked while parts are checked; when true, find() throws kIo. May be empty
  };

  // comm: over all ranks, for this object's use only; not owned. Collective. Throws (on all ranks) as Saver.
  LocalTier(core::Communicator& comm, Options options);
  // Waits for this rank's thread, as Saver's. Never throws.
  ~LocalTier();
  LocalTier(const LocalTier&) = delete;
  LocalTier& operator=(const LocalTier&) = delete;

  struct Found {
    int64_t iteration = 0;
    std::unique_ptr<Source> source;  // this rank's part
    int fetched = 0;                 // parts that came from other ranks, of all ranks
  };
  // The newest checkpoint beyond newer_than that was saved with this layout, of these shards of this rank, and of which
  // every rank's part is whole in some rank's folder; ranks that lack theirs have got it. All of its hashes have been
  // checked; what is damaged counts as absent. The log says what is passed over, and why. Collective; throws on all
  // ranks.
  std::optional<Found> find(const nlohmann::json& layout, std::span<const core::ShardedTensor> shards,
                            int64_t newer_than);

  // As Saver's. shards: all that this rank needs; replica_id does not count. No rank's save before may be unfinished.
  void reserve(std::span<const ShardData> shards);
  void save(const SaveRequest& request);
  void before_update();
  Saver::Status status() const;  // unfinished: the part is not committed, or not replicated
  // Every rank's status() since the last save() said that it is finished and has not failed: what is older may go. In
  // the background.
  void confirm();
  // Collective: when no rank's save is unfinished; then confirms it. Throws, the same on all ranks, why one has failed.
  void finish();

  double last_blocking_seconds() const;  // of the last save()
  int64_t last_bytes() const;            // snapshot of this rank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::ckpt
