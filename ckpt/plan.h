// The reshard plan: which elements of which source shard are copied to which target shard.
//
// Planning is pure: no files, no MPI; the same input gives the same plan. `msckpt plan` prints it, execute.h executes
// it. A global tensor is an n-d box, a shard a sub-box (Megatron's ShardedTensor); a plan is the sequence of their
// non-empty intersections. Offsets and extents are in elements, outermost axis first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/shard_table.h"

namespace ms::ckpt {

struct CopyRegion {
  int32_t source_shard = 0;  // index into the planner's `sources`
  int32_t target_shard = 0;  // index into the planner's `targets`
  core::Dims source_offset;  // within the source shard
  core::Dims target_offset;  // within the target shard
  core::Dims extent;         // > 0 on every axis
};

// The shards of each tensor of a table: members in the order of the table. 4 bytes per shard, or nothing if the table
// is sorted by tensor.
class ShardsOfTensors {
 public:
  explicit ShardsOfTensors(const ShardTable& table);
  size_t count(int32_t tensor) const { return first_[index(tensor) + 1] - first_[index(tensor)]; }
  int32_t member(int32_t tensor, size_t i) const {
    const uint32_t place = first_[index(tensor)] + static_cast<uint32_t>(i);
    return members_.empty() ? static_cast<int32_t>(place) : members_[place];
  }

 private:
  static size_t index(int32_t tensor) { return static_cast<size_t>(tensor); }
  std::vector<uint32_t> first_;
  std::vector<int32_t> members_;
};

// Finds the copies that fill a target. A source tensor is checked and sorted when a target first needs it.
//
// sources, targets: shards of any number of global tensors, matched by (key, role); not owned. Source replicas
//   (replica_id != 0) are not read; every target replica is filled. dtypes may differ: execute.h converts.
// Cost: O(k log k), once, for the k shards of a tensor that is split along one axis or on a grid, and
//   O(log k + copies) per target; 24 bytes per shard for tensors with more than a few shards.
class Planner {
 public:
  Planner(const ShardTable& sources, const ShardTable& targets);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // Calls emit for the copies that together fill every element of this target exactly once. The region is valid during
  // the call.
  // Throws kInvalidArgument if global_shape of a key differs between the sides, kCorruptData if a target has no source,
  //   or if the source shards leave a hole in the tensor or overlap; nothing has been emitted then.
  void copies_of(int32_t target, const std::function<void(const CopyRegion&)>& emit);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All copies of all targets, in the order of the targets.
void plan_copies(const ShardTable& sources, const ShardTable& targets,
                 const std::function<void(const CopyRegion&)>& emit);

// Checks that the table's shards (replicas excluded) tile their tensors exactly. One sentence per finding (a box
// outside the tensor, two that overlap, elements that no box holds), at most `limit` per tensor; `finding` gets the
// tensor's index and the sentence. The second form returns the sentences.
void check_coverage(const ShardTable& shards, int limit,
                    const std::function<void(int32_t tensor, std::string text)>& finding);
std::vector<std::string> check_coverage(const ShardTable& shards, int limit = 16);

}  // namespace ms::ckpt
