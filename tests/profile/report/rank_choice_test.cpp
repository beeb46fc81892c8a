// Which ranks a page shows: those that say something first, never more than there is room for.
#include "profile/report/rank_choice.h"

#include <gtest/gtest.h>

#include <set>

#include "profile/ingest/load.h"
#include "profile/sections.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_maker.h"

namespace ms::profile {
namespace {

// Ranks of one gemm each, then a collective that ends together; rank 5 computes longest, rank 2 least.
Results job(const std::filesystem::path& folder, int ranks) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  for (int rank = 0; rank < ranks; ++rank) {
    test::TraceMaker maker(folder, rank, ranks);
    for (int i = 0; i < 20; ++i) {
      const int64_t t = 1'000'000 * i, work = rank == 5 ? 700'000 : rank == 2 ? 300'000 : 400'000 + 1000 * rank;
      maker.kernel("gemm", t, t + work);
      maker.comm("allreduce", "dp", members, t + work, t + 800'000);
    }
    maker.finish();
  }
  return analyze(load({folder.string()}, {}), sections::every());
}

TEST(RankChoice, RanksOfFindingsComeFirstThenExtremes) {
  const test::TemporaryFolder folder;
  const Results results = job(folder.path(), 12);
  const std::vector<ShownRank> shown = choose_ranks(results, 4);
  ASSERT_EQ(shown.size(), 4u);
  EXPECT_EQ(shown[0].rank, results.at<Findings>().at(0).worst_rank);
  EXPECT_EQ(shown[0].reason, "finding 1");
  std::set<int> ranks;
  for (const ShownRank& rank : shown) {
    ranks.insert(rank.rank);
    EXPECT_EQ(results.ranks[rank.index].rank, rank.rank);
  }
  EXPECT_EQ(ranks.size(), 4u) << "each once";
  EXPECT_EQ(ranks.count(5), 1u) << "computes longest";
  EXPECT_EQ(ranks.count(2), 1u) << "computes least";
}

TEST(RankChoice, AllRanksWhereThereIsRoom) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(choose_ranks(job(folder.path(), 8), 64).size(), 8u);
}

TEST(RankChoice, OneRankNeedsNoReason) {
  const test::TemporaryFolder folder;
  const std::vector<ShownRank> shown = choose_ranks(job(folder.path(), 1), 64);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].reason, "");
}

}  // namespace
}  // namespace ms::profile
