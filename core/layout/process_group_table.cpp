#include "core/layout/process_group_table.h"

#include <array>
#include <bit>

#include "core/error.h"

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
                                                {"cp_2", RankGrid::kCp},
                                                {"cp_4", RankGrid::kCp},
                                                {"cp_8", RankGrid::kCp},
                                                {"cp_16", RankGrid::kCp},
                                                {"cp_32", RankGrid::kCp},
                                                {"cp_64", RankGrid::kCp},
                                                {"cp_128", RankGrid::kCp},
                                                {"cp_256", RankGrid::kCp},
                                                {"cp_512", RankGrid::kCp},
                                                {"world", kAllAxes},
                                                {"checkpoint", kAllAxes},
                                                {"configuration", kAllAxes},
                                                {"start", kAllAxes},
                                                {"local", kAllAxes},
                                                {"benchmark", kAllAxes}}};

const Row& row(Group group) { return kRows[static_cast<size_t>(group)]; }

// Of kCp2, kCp4, ..; 0 of other groups.
int degree_of(Group group) {
  if (group < Group::kCp2 || group > Group::kCp512) return 0;
  return 2 << (static_cast<int>(group) - static_cast<int>(Group::kCp2));
}

}  // namespace

std::string_view group_name(Group group) { return row(group).name; }

std::vector<int> ranks_of_group(Group group, const RankGrid& grid, int rank) {
  std::vector<int> ranks = grid.group(rank, row(group).parts);
  if (group == Group::kQueryGroup) {
    const auto first = ranks.begin() + grid.coordinates(rank).tp / grid.query_parts * grid.query_parts;
    return {first, first + grid.query_parts};
  }
  if (const int degree = degree_of(group); degree > 0) {
    if (!grid.chooses_cp || degree >= grid.cp) return {};
    const auto first = ranks.begin() + grid.coordinates(rank).cp / degree * degree;
    return {first, first + degree};
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

Group group_of_heads(const RankGrid& grid, const ContextParts& parts) {
  return parts.ulysses == grid.cp ? Group::kCp : Group::kUlysses;
}

Group group_of_ring(const RankGrid& grid, const ContextParts& parts) {
  return parts.ring == grid.cp ? Group::kCp : Group::kCpRing;
}

Group group_of_degree(const RankGrid& grid, int degree) {
  MS_CHECK(degree > 1 && degree <= grid.cp && std::has_single_bit(static_cast<unsigned>(degree)), degree, " of ",
           grid.cp, " ranks");
  if (degree == grid.cp) return Group::kCp;
  return static_cast<Group>(static_cast<int>(Group::kCp2) + std::countr_zero(static_cast<unsigned>(degree)) - 1);
}

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
