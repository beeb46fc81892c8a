// Groups and coordinates against Megatron's own RankGenerator (tests/data/make_rank_groups.py).
#include "core/layout/rank_grid.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace ms::layout {
namespace {

// "tp-pp" in Megatron's names.
unsigned parts_of(const std::string& token, bool experts) {
  unsigned parts = 0;
  if (token.find("tp") != std::string::npos) parts |= experts ? RankGrid::kEtp : RankGrid::kTp;
  if (token.find("ep") != std::string::npos) parts |= RankGrid::kEp;
  if (token.find("cp") != std::string::npos) parts |= RankGrid::kCp;
  if (token.find("dp") != std::string::npos) parts |= experts ? RankGrid::kExpertDp : RankGrid::kDp;
  if (token.find("pp") != std::string::npos) parts |= RankGrid::kPp;
  return parts;
}

RankGrid grid_of(const nlohmann::json& row) {
  RankGrid grid{.tp = row["tp"], .cp = row["cp"], .dp = row["dp"], .pp = row["pp"]};
  grid.order = *parse_order(row["order"].get<std::string>());
  grid.etp = row.value("etp", 1);
  grid.ep = row.value("ep", 1);
  return grid;
}

TEST(RankGrid, GroupsAreMegatrons) {
  std::ifstream file(MS_TEST_DATA "/rank_groups.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GT(golden.size(), 20U);
  for (const nlohmann::json& row : golden) {
    const RankGrid grid = grid_of(row);
    const bool experts = row.contains("expert_groups");
    for (const auto& [token, groups] : row.at(experts ? "expert_groups" : "groups").items()) {
      std::set<std::vector<int>> ours, theirs;
      for (int rank = 0; rank < grid.world_size(); ++rank) ours.insert(grid.group(rank, parts_of(token, experts)));
      for (const nlohmann::json& group : groups) theirs.insert(group.get<std::vector<int>>());
      EXPECT_EQ(ours, theirs) << row["order"] << " tp " << grid.tp << " cp " << grid.cp << " dp " << grid.dp << " pp "
                              << grid.pp << " etp " << grid.etp << " ep " << grid.ep << ": " << token;
    }
    for (int rank = 0; rank < grid.world_size(); ++rank) EXPECT_EQ(grid.rank(grid.coordinates(rank)), rank);
  }
}

TEST(RankGrid, CoordinatesCountAlongTheirAxis) {
  const RankGrid grid{.tp = 2, .cp = 3, .dp = 4, .pp = 5, .order = kTpCpEpPpDp};
  const RankGrid::Coordinates at = grid.coordinates(1 + 2 * (2 + 3 * (4 + 5 * 3)));
  EXPECT_EQ(at.tp, 1);
  EXPECT_EQ(at.cp, 2);
  EXPECT_EQ(at.pp, 4);
  EXPECT_EQ(at.dp, 3);
}

TEST(RankGrid, ExpertsAreNumberedWithinTheStage) {
  const RankGrid grid{.tp = 2, .dp = 4, .pp = 2, .etp = 2, .ep = 2};
  EXPECT_EQ(grid.expert_dp(), 2);
  const RankGrid::ExpertCoordinates at = grid.expert_coordinates(8 + 7);
  EXPECT_EQ(at.etp, 1);
  EXPECT_EQ(at.ep, 1);
  EXPECT_EQ(at.expert_dp, 1);
}

TEST(AxisOrder, NamesAndOrdersAreTheSame) {
  EXPECT_EQ(order_name(kTpCpEpDpPp), "tp-cp-ep-dp-pp");
  EXPECT_EQ(parse_order("tp-cp-ep-pp-dp"), kTpCpEpPpDp);
  for (const char* name : {"", "tp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-", "dp-tp"})
    EXPECT_FALSE(parse_order(name).has_value()) << name;
}

}  // namespace
}  // namespace ms::layout
