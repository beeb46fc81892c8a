// The process groups of a rank, created from the table of groups and passed to where they are needed (Megatron's
// ProcessGroupCollection).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/comm/communicator.h"
#include "core/layout/process_group_table.h"
#include "core/layout/rank_grid.h"

namespace ms::train {

struct TrainerConfig;

// This rank's group of that kind, which must exist. Local: sends no message. The endpoint's size must equal the grid's;
// it must outlive the group.
core::Communicator open_group(core::Endpoint& endpoint, const layout::RankGrid& grid, layout::Group group);
// A group of all ranks, before there is a grid.
core::Communicator open_group(core::Endpoint& endpoint, layout::Group group);

// The groups of training steps, and those of all ranks that last as long.
struct ProcessGroups {
  ProcessGroups(core::Endpoint& endpoint, const layout::RankGrid& grid);

  layout::RankGrid grid;
  layout::RankGrid::Coordinates at;  // of this rank
  layout::RankGrid::ExpertCoordinates at_experts;
  core::Communicator world, tp, pp, dp_cp, model, checkpoint;
  std::optional<core::Communicator> embedding;
  std::optional<core::Communicator> cp;  // where ranks share a sequence
  // Parts of these that exchange heads, windows of their ring, and the ring, where they are not all of them. Layers may
  // differ in whether they use these or cp (TrainingStep::context_parts_of).
  std::optional<core::Communicator> ulysses, cp_window, cp_ring;
  std::vector<core::Communicator> degrees;        // of 2, 4, .. of cp, where these share samples
  std::optional<core::Communicator> query_group;  // where ranks share one
  // With several instances of the optimizer: the ranks of one, and those that have the same part of each.
  std::optional<core::Communicator> dp_shard, dp_replica;
  std::optional<core::Communicator> ep_outer;  // where the ranks of experts are blocks of tp
  // Of experts that are cut in another way than the rest of a layer: ep, etp, etp_ep, expert_dp, and with several
  // instances of the optimizer expert_dp_shard and expert_dp_replica. Empty if none are.
  std::vector<core::Communicator> experts;

  // The group of training of this kind; nullptr if this rank is in none.
  core::Communicator* of_training(layout::Group group);
  // The groups of process_group_table.h's functions of these names, which exist if ranks share sequences so in a layer,
  core::Communicator& heads(const layout::ContextParts& parts) {
    return *of_training(layout::group_of_heads(grid, parts));
  }
  core::Communicator& ring(const layout::ContextParts& parts) {
    return *of_training(layout::group_of_ring(grid, parts));
  }
  core::Communicator& of_degree(int degree) { return *of_training(layout::group_of_degree(grid, degree)); }
  // and which exist if there are experts.
  core::Communicator& expert_replicas() { return *of_training(layout::group_of_expert_replicas(grid)); }
  core::Communicator& expert_parts() { return *of_training(layout::group_of_expert_parts(grid)); }
  core::Communicator& all_experts() { return *of_training(layout::group_of_all_experts(grid)); }
};

// Collective. The groups, whose ranks of one machine address each other's memory from now on (Endpoint::share_memory):
// replicas the weights and gradients of `arena`, which has nothing yet, ranks that share layers or sequences its
// activations. Small collectives of any ranks of one machine go through memory. null: they exchange messages.
std::unique_ptr<ProcessGroups> open_process_groups(core::Endpoint& endpoint, const layout::RankGrid& grid,
                                                   core::Arena* arena);
// The same as the configuration has them.
std::unique_ptr<ProcessGroups> open_process_groups(core::Endpoint& endpoint, const TrainerConfig& config,
                                                   core::Arena& arena);

}  // namespace ms::train
