#include "core/layout/process_group_table.h"

#include <array>

namespace ms::layout {
namespace {

struct Row {
  std::string_view name;
  unsigned axes;
};
constexpr unsigned kAllAxes = RankGrid::kTp | RankGrid::kCp | RankGrid::kDp | RankGrid::kPp;
constexpr std::array<Row, kNumGroups> kRows = {{{"tp", RankGrid::kTp},
                                                {"pp", RankGrid::kPp},
                                                {"dp_cp", RankGrid::kDp | RankGrid::kCp},
                                                {"model", RankGrid::kTp | RankGrid::kPp},
                                                {"embedding", RankGrid::kPp},
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
  std::vector<int> ranks = grid.group(rank, row(group).axes);
  if (group != Group::kEmbedding) return ranks;
  if (grid.pp == 1 || (rank != ranks.front() && rank != ranks.back())) return {};
  return {ranks.front(), ranks.back()};
}

}  // namespace ms::layout
