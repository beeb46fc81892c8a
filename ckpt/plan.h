// The reshard plan: which elements of which source shard go where in which target shard.
//
// Planning is pure: no files, no MPI; same input, same plan. `msckpt plan` prints it, execute.h carries it out. A
// global tensor is an n-d box, a shard a sub-box (Megatron's ShardedTensor); a plan is the sequence of their non-empty
// intersections. Offsets and extents are in elements, outermost axis first.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/sharded_tensor.h"

namespace ms::ckpt {

struct CopyRegion {
  int32_t source_shard = 0;  // index into plan_copies' `sources`
  int32_t target_shard = 0;  // index into plan_copies' `targets`
  core::Dims source_offset;  // within the source shard
  core::Dims target_offset;  // within the target shard
  core::Dims extent;         // > 0 on every axis
};

// Calls emit for the copies that fill every element of `targets` exactly once: target by target, in their order.
//
// sources, targets: shards of any number of global tensors, matched by (key, role). Source replicas (replica_id != 0)
//   are not read; every target replica is filled. dtypes may differ: execute.h converts.
// Throws kInvalidArgument if global_shape of a key differs between the sides, kCorruptData if a target has no source,
//   or the sources leave a hole in, or overlap within, a tensor that the targets need; nothing has been emitted for
//   that tensor.
// Cost: O(k log k + copies) time for the k shards of a tensor that is split along one axis or on a grid; O(k) memory: a
//   plan is streamed, never held.
void plan_copies(std::span<const core::ShardedTensor> sources, std::span<const core::ShardedTensor> targets,
                 const std::function<void(const CopyRegion&)>& emit);

// What is wrong with the way `shards` (all of one global tensor, replicas left out) cover it: one sentence per finding
// (a box that sticks out, two that overlap, elements that none holds), at most `limit`; empty when they tile it
// exactly.
std::vector<std::string> check_coverage(std::span<const core::ShardedTensor> shards, int limit = 16);

}  // namespace ms::ckpt
