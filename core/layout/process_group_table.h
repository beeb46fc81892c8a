// The process groups of a run as data: name, members and context number of each (Megatron's parallel_state.py).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/layout/context_parallel.h"
#include "core/layout/rank_grid.h"

namespace ms::layout {

// The number of a group is the context number of its messages (core/comm/communicator.h), so no two groups share one.
enum class Group : uint8_t {
  // Of training steps.
  kTp,         // tensor-model-parallel
  kPp,         // pipeline stages, first to last
  kDpCp,       // ranks that reduce gradients together
  kModel,      // tp x pp: one model replica
  kEmbedding,  // first and last stage, which may share the embedding weight; pp > 1
  kCp,         // ranks that share a sequence
  kDp,         // replicas that read different samples
  kEp,         // ranks that the experts are distributed over,
  kEtp,        // that share each expert,
  kExpertDp,   // and that reduce an expert's gradients together
  kTpX,        // parts of tp: 2D tensor parallelism
  kTpY,
  kUlysses,          // parts of cp: all-to-all of heads,
  kCpWindow,         // inner and
  kCpRing,           // outer ring
  kDpShard,          // parts of dp_cp: ranks that share the optimizer state,
  kDpReplica,        // and ranks that hold the same part of it
  kEtpEp,            // ranks that together have all experts of a layer
  kQueryGroup,       // parts of tp: ranks that share a query group
  kExpertDpShard,    // parts of the experts' dp: ranks that share their optimizer state,
  kExpertDpReplica,  // and ranks that hold the same part of it
  kEpOuter,          // parts of ep: ranks in the same place of blocks of tp ranks
  // Parts of cp: neighbours that share samples which need no more ranks.
  kCp2,
  kCp4,
  kCp8,
  kCp16,
  kCp32,
  kCp64,
  kCp128,
  kCp256,
  kCp512,
  // All ranks; control traffic, which no step plan counts.
  kWorld,            // between steps: signals, time limits, timers
  kCheckpoint,       // saves
  kConfiguration,    // agreement on the configuration,
  kStart,            // on the start,
  kLocalCheckpoint,  // and on local checkpoints
  kBenchmark,        // start of --benchmark
};
inline constexpr int kNumGroups = 37;
inline constexpr int kNumTrainingGroups = 31;  // the first ones
std::string_view group_name(Group group);      // "tp", ..

// World ranks, in group-rank order, of the group of this kind that contains `rank`; empty if there is none.
std::vector<int> ranks_of_group(Group group, const RankGrid& grid, int rank);

// The groups of ranks that share a sequence in a layer of these parts, by the name kCp where they are all of these:
// ranks that exchange heads, and the ring (the outer one, if it has windows) around which keys travel.
Group group_of_heads(const RankGrid& grid, const ContextParts& parts);
Group group_of_ring(const RankGrid& grid, const ContextParts& parts);

// Of ranks that share samples as neighbours (RankGrid::chooses_cp): that of `degree` of them, a power of two from 2 to
// cp. The most ranks that may: kMaxChosenCp.
inline constexpr int kMaxChosenCp = 1024;
Group group_of_degree(const RankGrid& grid, int degree);

// Whether it is one of the experts' grid.
bool is_group_of_experts(Group group);

// Whether other ranks hold an expert's parameters than the rest of a layer's.
bool experts_apart(const RankGrid& grid);
// The groups of experts, by the name of the dense group where both have the same ranks: counters have each once.
Group group_of_expert_replicas(const RankGrid& grid);  // ranks that hold the same experts
Group group_of_expert_parts(const RankGrid& grid);     // etp ranks, which share each expert
Group group_of_all_experts(const RankGrid& grid);      // etp x ep ranks, which together have all experts of a layer
// Whether ep is several blocks of tp ranks each: tp and Group::kEpOuter are its parts.
bool has_blocks_of_experts(const RankGrid& grid);

}  // namespace ms::layout
