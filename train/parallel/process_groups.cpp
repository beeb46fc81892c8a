#include "train/parallel/process_groups.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "core/error.h"
#include "core/log.h"
#include "train/config.h"

namespace ms::train {

using layout::Group;
namespace {

// What other ranks reduce, or read. The rest stays where it is fastest: memory that is shared has no huge pages.
std::vector<core::MemoryTag> shared_tags(const layout::RankGrid& grid) {
  std::vector<core::MemoryTag> tags;
  if (grid.replicas() > 1) tags = {core::MemoryTag::kParam, core::MemoryTag::kGrad};
  if (grid.tp > 1 || grid.cp > 1) tags.push_back(core::MemoryTag::kAct);
  return tags;
}

constexpr std::array kExpertGroups = {Group::kEp,       Group::kEtp,           Group::kEtpEp,
                                      Group::kExpertDp, Group::kExpertDpShard, Group::kExpertDpReplica};
constexpr size_t kWithoutInstances = 4;  // the first ones

}  // namespace

core::Communicator open_group(core::Endpoint& endpoint, const layout::RankGrid& grid, Group group) {
  MS_CHECK(endpoint.size() == grid.world_size(), "grid of ", grid.world_size(), " ranks on ", endpoint.size());
  return {endpoint, std::string(layout::group_name(group)), layout::ranks_of_group(group, grid, endpoint.rank()),
          static_cast<int>(group)};
}

core::Communicator open_group(core::Endpoint& endpoint, Group group) {
  return open_group(endpoint, {.dp = endpoint.size()}, group);
}

ProcessGroups::ProcessGroups(core::Endpoint& endpoint, const layout::RankGrid& sizes)
    : grid(sizes),
      at(sizes.coordinates(endpoint.rank())),
      at_experts(sizes.expert_coordinates(endpoint.rank())),
      world(open_group(endpoint, sizes, Group::kWorld)),
      tp(open_group(endpoint, sizes, Group::kTp)),
      pp(open_group(endpoint, sizes, Group::kPp)),
      dp_cp(open_group(endpoint, sizes, Group::kDpCp)),
      model(open_group(endpoint, sizes, Group::kModel)),
      checkpoint(open_group(endpoint, sizes, Group::kCheckpoint)) {
  if (!layout::ranks_of_group(Group::kEmbedding, sizes, endpoint.rank()).empty()) {
    embedding.emplace(open_group(endpoint, sizes, Group::kEmbedding));
  }
  if (sizes.cp > 1) cp.emplace(open_group(endpoint, sizes, Group::kCp));
  const int ring = sizes.cp_window * sizes.cp_ring;
  if (ring > 1 && ring < sizes.cp) ulysses.emplace(open_group(endpoint, sizes, Group::kUlysses));
  if (sizes.cp_window > 1) cp_window.emplace(open_group(endpoint, sizes, Group::kCpWindow));
  if (ring > 1 && sizes.cp_ring < sizes.cp) cp_ring.emplace(open_group(endpoint, sizes, Group::kCpRing));
  for (int degree = 2; sizes.chooses_cp && degree < sizes.cp; degree *= 2)
    degrees.push_back(open_group(endpoint, sizes, layout::group_of_degree(sizes, degree)));
  if (sizes.query_parts > 1) query_group.emplace(open_group(endpoint, sizes, Group::kQueryGroup));
  if (sizes.dp_replica > 1) {
    dp_shard.emplace(open_group(endpoint, sizes, Group::kDpShard));
    dp_replica.emplace(open_group(endpoint, sizes, Group::kDpReplica));
  }
  if (layout::has_blocks_of_experts(sizes)) ep_outer.emplace(open_group(endpoint, sizes, Group::kEpOuter));
  if (!layout::experts_apart(sizes)) return;
  for (const Group group :
       std::span(kExpertGroups).first(sizes.dp_replica > 1 ? kExpertGroups.size() : kWithoutInstances))
    experts.push_back(open_group(endpoint, sizes, group));
}

core::Communicator* ProcessGroups::of_training(Group group) {
  switch (group) {
    case Group::kTp:
      return &tp;
    case Group::kPp:
      return &pp;
    case Group::kDpCp:
      return &dp_cp;
    case Group::kModel:
      return &model;
    case Group::kCp:
      return cp ? &*cp : nullptr;
    case Group::kUlysses:
      return ulysses ? &*ulysses : nullptr;
    case Group::kCpWindow:
      return cp_window ? &*cp_window : nullptr;
    case Group::kCpRing:
      return cp_ring ? &*cp_ring : nullptr;
    case Group::kEmbedding:
      return embedding ? &*embedding : nullptr;
    case Group::kQueryGroup:
      return query_group ? &*query_group : nullptr;
    case Group::kEpOuter:
      return ep_outer ? &*ep_outer : nullptr;
    case Group::kDpShard:
      return dp_shard ? &*dp_shard : nullptr;
    case Group::kDpReplica:
      return dp_replica ? &*dp_replica : nullptr;
    default: {
      if (group >= Group::kCp2 && group <= Group::kCp512) {
        const auto number = static_cast<size_t>(group) - static_cast<size_t>(Group::kCp2);
        return number < degrees.size() ? &degrees[number] : nullptr;
      }
      const auto found = std::ranges::find(kExpertGroups, group);
      const auto number = static_cast<size_t>(found - kExpertGroups.begin());
      return number < experts.size() ? &experts[number] : nullptr;
    }
  }
}

std::unique_ptr<ProcessGroups> open_process_groups(core::Endpoint& endpoint, const layout::RankGrid& grid,
                                                   core::Arena* arena) {
  const bool shares = arena != nullptr && grid.replicas() > 1;
  if (arena != nullptr && grid.world_size() > 1) {
    const std::vector<core::MemoryTag> tags = shared_tags(grid);
    endpoint.share_memory(tags.empty() ? core::SharedRange{} : arena->share(tags));
  }
  auto groups = std::make_unique<ProcessGroups>(endpoint, grid);
  if (shares) {
    const core::CommunicatorLevels* const levels = groups->dp_cp.levels();
    if (groups->dp_cp.shares_memory()) {
      core::log_info("train.comm", "replicas share memory");
    } else if (levels != nullptr && levels->within.shares_memory()) {
      core::log_info("train.comm",
                     core::cat("replicas are on ", levels->across.size(), " machines: the ", levels->within.size(),
                               " of each share memory, and send what the others need of them once"));
    } else {
      core::log_info("train.comm",
                     "replicas exchange messages: they are on several machines, or cannot map each other's memory "
                     "(/proc/PID/fd is not to be opened, or ulimit -v)");
    }
  }
  return groups;
}

std::unique_ptr<ProcessGroups> open_process_groups(core::Endpoint& endpoint, const TrainerConfig& config,
                                                   core::Arena& arena) {
  auto groups =
      open_process_groups(endpoint, config.grid(endpoint.size()), config.parallel.shared_memory ? &arena : nullptr);
  for (const std::string& name : config.parallel.high_priority_stream_groups) {
    bool is_there = false;
    for (int number = 0; number < static_cast<int>(layout::kNumTrainingGroups); ++number) {
      const auto group = static_cast<Group>(number);
      core::Communicator* const of_training = groups->of_training(group);
      if (of_training == nullptr || layout::group_name(group) != name) continue;
      of_training->set_high_priority();
      is_there = true;
    }
    if (!is_there)
      core::log_warning("train.comm",
                        core::cat("--high-priority-stream-groups ", name, ": this run has no such group"));
  }
  return groups;
}

}  // namespace ms::train
