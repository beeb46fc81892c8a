#include "core/layout/process_group_table.h"

#include <array>

namespace ms::layout {
namespace {

struct Row {
  std::string_view name;
  unsigned parts;
};
constexpr unsigned kAllAxes = RankGrid::kTp | RankGrid::kCp | RankGrid::kDp | RankGrid::kPp;
constexpr std::array<Row, kNumGroups> kRows = {{{"tp", RankGrid::kTp},
                                                {"pp", RankGrid::kPp},
                                                {"dp_cp", RankGrid::kDp | RankGrid::kCp},
                                                {"model", RankGrid::kTp | RankGrid::kPp},
                                                {"embedding", RankGrid::kPp},
                                                {"cp", RankGrid::kCp},
                                                {"dp", RankGrid::kDp},
                                                {"ep", RankGrid::kEp},
                                                {"etp", RankGrid::kEtp},
                                                {"expert_dp", RankGrid::kExpertDp},
                                                {"tp_x", RankGrid::kTpX},
                                                {"tp_y", RankGrid::kTpY},
                                                {"ulysses", RankGrid::kUlysses},
                                                {"cp_window", RankGrid::kCpWindow},
                                                {"cp_ring", RankGrid::kCpRing},
                                                {"dp_shard", RankGrid::kDpShard | RankGrid::kCp},
                                                {"dp_replica", RankGrid::kDpReplica},
                                                {"etp_ep", RankGrid::kEtp | RankGrid::kEp},
                                                {"tp_query", RankGrid::kTp},
                                                {"expert_dp_shard", RankGrid::kExpertDpShard},
                                                {"expert_dp_replica", RankGrid::kExpertDpReplica},
                                                {"ep_outer", RankGrid::kEp},
                                                {"world", kAllAxes},
                                                {"checkpoint", kAllAxes},
                                                {"configuration", kAllAxes},
                                                {"start", kAllAxes},
                                                {"local", kAllAxes},
                                                {"benchmark", kAllAxes}}};

const Row& row(Group group) { return kRows[static_cast<size_t>(group)]; }

}  // namespace

std::string_view group_name(Group group) { return row(group).name; }

std::vector<int> ranks_of_group(Group group, const RankGrid& grid, int rank) {
  std::vector<int> ranks = grid.group(rank, row(group).parts);
  if (group == Group::kQueryGroup) {
    const auto first = ranks.begin() + grid.coordinates(rank).tp / grid.query_parts * grid.query_parts;
    return {first, first + grid.query_parts};
  }
  if (group == Group::kEpOuter) {
    if (!has_blocks_of_experts(grid)) return {};
    std::vector<int> outer;
    for (auto at = static_cast<size_t>(grid.coordinates(rank).tp); at < ranks.size();
         at += static_cast<size_t>(grid.tp))
      outer.push_back(ranks[at]);
    return outer;
  }
  if (group != Group::kEmbedding) return ranks;
  if (grid.pp == 1 || (rank != ranks.front() && rank != ranks.back())) return {};
  return {ranks.front(), ranks.back()};
}

Group group_of_heads(const RankGrid& grid) { return grid.cp_window * grid.cp_ring == 1 ? Group::kCp : Group::kUlysses; }

Group group_of_ring(const RankGrid& grid) { return grid.cp_ring == grid.cp ? Group::kCp : Group::kCpRing; }

bool is_group_of_experts(Group group) {
  constexpr unsigned kAxesOfExperts = RankGrid::kEtp | RankGrid::kEp | RankGrid::kExpertDp;
  return (row(group).parts & kAxesOfExperts) != 0;
}

bool experts_apart(const RankGrid& grid) { return grid.ep > 1 || grid.etp != grid.tp; }

bool has_blocks_of_experts(const RankGrid& grid) {
  return grid.etp == 1 && grid.tp > 1 && grid.ep > grid.tp && grid.ep % grid.tp == 0;
}

Group group_of_expert_replicas(const RankGrid& grid) { return experts_apart(grid) ? Group::kExpertDp : Group::kDpCp; }

Group group_of_expert_parts(const RankGrid& grid) { return grid.etp == grid.tp ? Group::kTp : Group::kEtp; }

Group group_of_all_experts(const RankGrid& grid) {
  if (grid.etp == 1) return Group::kEp;
  return grid.ep == 1 ? group_of_expert_parts(grid) : Group::kEtpEp;
}

}  // namespace ms::layout
