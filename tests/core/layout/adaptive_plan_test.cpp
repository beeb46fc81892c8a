#include "core/layout/adaptive_plan.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "tests/support/mask_grids.h"

namespace ms::layout {
namespace {

using enum PositionOrder;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Ends of so many documents of random lengths.
std::vector<int64_t> random_ends(int64_t seq, int64_t documents, uint64_t seed) {
  const core::Rng rng(seed, "documents");
  std::set<int64_t> ends = {seq};
  for (uint64_t draw = 0; static_cast<int64_t>(ends.size()) < documents; ++draw)
    ends.insert(1 + static_cast<int64_t>(rng.below(draw, static_cast<uint64_t>(seq - 1))));
  return {ends.begin(), ends.end()};
}

// A mask that symmetric documents make: a position sees all of its document.
CoarseMask block_diagonal(int64_t seq, int64_t cells, const std::vector<int64_t>& ends) {
  CoarseMask mask(seq, cells, ends);
  for (int64_t query = 0; query < cells; ++query)
    for (int64_t key = 0; key < query; ++key)
      if (mask.sees(query, key)) mask.show(key, query);
  return mask;
}

int owner_of(const AdaptivePlan& plan, int64_t position) {
  int owner = -1;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    for (const Segment& of : plan.segments[static_cast<size_t>(rank)]) {
      if (position < of.first || position >= of.first + of.count) continue;
      EXPECT_EQ(owner, -1) << "position " << position << " has two ranks";
      owner = rank;
    }
  }
  return owner;
}

// Every position is of one rank, every block with a visible score travels once, and no rank has more than its share of
// a round; there are no more rounds than the limits ask for.
void expect_valid(const AdaptivePlan& plan, const CoarseMask& mask) {
  const int ranks = plan.ranks();
  std::set<std::pair<int, int>> needed, sent;
  std::vector<int> owners;
  for (int64_t cell = 0; cell < mask.cells(); ++cell) owners.push_back(owner_of(plan, cell * mask.positions()));
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(std::ranges::count(owners, rank), mask.cells() / ranks);
    const auto& segments = plan.segments[static_cast<size_t>(rank)];
    for (size_t i = 1; i < segments.size(); ++i)
      EXPECT_GT(segments[i].first, segments[i - 1].first + segments[i - 1].count);
  }
  for (int64_t query = 0; query < mask.cells(); ++query) {
    for (int64_t key = 0; key < mask.cells(); ++key) {
      const std::pair<int, int> block = {owners[static_cast<size_t>(key)], owners[static_cast<size_t>(query)]};
      if (mask.sees(query, key) && block.first != block.second) needed.insert(block);
    }
  }
  size_t rounds = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto received = static_cast<size_t>(std::ranges::count(needed, rank, &std::pair<int, int>::second));
    const auto leaving = static_cast<size_t>(std::ranges::count(needed, rank, &std::pair<int, int>::first));
    EXPECT_EQ(plan.received_by(rank), static_cast<int64_t>(received));
    EXPECT_EQ(plan.sent_by(rank), static_cast<int64_t>(leaving));
    rounds = std::max({rounds, received, (leaving + 1) / 2});
  }
  EXPECT_EQ(plan.rounds.size(), rounds);
  for (const auto& round : plan.rounds) {
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(std::ranges::count(round, rank, &BlockTransfer::to), 1);
      EXPECT_LE(std::ranges::count(round, rank, &BlockTransfer::from), 2);
    }
    for (const BlockTransfer& block : round) EXPECT_TRUE(sent.emplace(block.from, block.to).second);
  }
  EXPECT_EQ(sent, needed);
}

TEST(CoarseMask, HasTheCellsOfDocumentsInAnySample) {
  const std::vector<int64_t> ends = {5, 12, 15, 24};  // two samples of 12
  const CoarseMask mask(12, 4, ends);
  const std::vector<std::vector<int>> seen = {{1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 1, 0}, {0, 1, 1, 1}};
  for (int64_t query = 0; query < 4; ++query)
    for (int64_t key = 0; key < 4; ++key)
      EXPECT_EQ(mask.sees(query, key), seen[static_cast<size_t>(query)][static_cast<size_t>(key)] == 1)
          << query << ", " << key;
  EXPECT_EQ(coarse_cells(65536, 8), 1024);
  EXPECT_EQ(coarse_cells(48, 8), 48);
  EXPECT_EQ(coarse_cells(8 * 1031, 8), 8);  // a prime number of positions on a rank
  EXPECT_EQ(coarse_cells(8192 * 2, 4096), 4096);
  EXPECT_THROW(CoarseMask(10, 4), core::Error);
}

// What MindSpeed claims for packed documents, in the bytes and rounds of a ring of 8: 7 blocks of each rank, one round
// for each block.
TEST(AdaptivePlan, DocumentsNeedHalfOfTheRingAtMost) {
  constexpr int kRanks = 8;
  constexpr int64_t kSeq = 65536, kOfRing = kRanks * (kRanks - 1);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(core::cat("seed ", seed));
    const std::vector<int64_t> ends = random_ends(kSeq, 16, seed);
    for (const bool symmetric : {false, true}) {
      const CoarseMask mask = symmetric ? block_diagonal(kSeq, 1024, ends) : CoarseMask(kSeq, 1024, ends);
      const AdaptivePlan plan = plan_blocks(mask, kRanks, kOfClusters);
      expect_valid(plan, mask);
      EXPECT_LE(2 * plan.transfers(), kOfRing);
      EXPECT_LE(2 * (1 + plan.rounds.size()), size_t{kRanks});
      EXPECT_LE(plan.transfers(), plan_blocks(mask, kRanks, kOfSequence).transfers());
    }
  }
}

TEST(AdaptivePlan, PrefixesNeedLessThanTheRingAndDenseMasksNoMore) {
  constexpr int kRanks = 8;
  constexpr int64_t kCells = 256, kOfRing = kRanks * (kRanks - 1);
  for (const int64_t prefix : {16, 64, 128}) {
    CoarseMask mask(kCells * 8, kCells, {});
    for (int64_t query = 0; query < kCells; ++query)
      for (int64_t key = 0; key < prefix; ++key) mask.show(query, key);
    const AdaptivePlan plan = plan_blocks(mask, kRanks, kOfClusters);
    expect_valid(plan, mask);
    EXPECT_LT(plan.transfers(), kOfRing) << "a prefix of " << prefix;
    EXPECT_LE(1 + plan.rounds.size(), size_t{kRanks});
  }
  for (const uint64_t percent : {uint64_t{2}, uint64_t{50}}) {
    CoarseMask mask(kCells, kCells);
    const core::Rng rng(percent, "a random mask");
    for (int64_t query = 0; query < kCells; ++query)
      for (int64_t key = 0; key < kCells; ++key)
        if (rng.below(static_cast<uint64_t>(query * kCells + key), 100) < percent) mask.show(query, key);
    const AdaptivePlan plan = plan_blocks(mask, kRanks, kOfClusters);
    expect_valid(plan, mask);
    EXPECT_LE(plan.transfers(), kOfRing);
    EXPECT_LE(1 + plan.rounds.size(), size_t{kRanks});
  }
}

// Of orders that a search may find: no plan has fewer blocks than the bound, and the bound is met where all positions
// see each other, and where documents end with the parts of ranks.
TEST(AdaptivePlan, NoOrderHasFewerBlocksThanTheBound) {
  constexpr int kRanks = 8;
  constexpr int64_t kSeq = 4096, kCells = 256;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const int64_t documents : {2, 5, 16}) {
      const CoarseMask mask(kSeq, kCells, random_ends(kSeq, documents, seed));
      EXPECT_GE(2 * plan_blocks(mask, kRanks, kOfClusters).transfers(), least_neighbours(mask, kRanks));
    }
  }
  for (const int64_t documents : {1, 2, 4}) {
    std::vector<int64_t> ends;
    for (int64_t i = 1; i <= documents; ++i) ends.push_back(kSeq / documents * i);
    const CoarseMask mask(kSeq, kCells, ends);
    EXPECT_EQ(2 * plan_blocks(mask, kRanks, kOfSequence).transfers(), least_neighbours(mask, kRanks)) << documents;
  }
}

// The samples of a run with --prefix-length: of two ranks one needs the keys of the other, both where both have
// positions of the prefix. No order of a finer mask does with less.
TEST(AdaptivePlan, PrefixesLeaveTheBlocksBetweenTheRanksThatHaveThem) {
  constexpr int kRanks = 8;
  constexpr int64_t kCells = 64, kSeq = kCells * 4, kOfRank = kSeq / kRanks, kOfRing = kRanks * (kRanks - 1);
  for (const int64_t prefix : {int64_t{1}, kOfRank, kOfRank + 1, 3 * kOfRank, kSeq - kOfRank, kSeq}) {
    SCOPED_TRACE(core::cat("a prefix of ", prefix));
    const auto plan = plan_documents(kSeq, kRanks, {}, kOfClusters, prefix);
    CoarseMask mask(kSeq, kCells, {});
    mask.show_prefix(prefix);
    expect_valid(*plan, mask);
    const int64_t having = (prefix + kOfRank - 1) / kOfRank;
    EXPECT_EQ(plan->transfers(), kOfRing / 2 + having * (having - 1) / 2);
    EXPECT_EQ(plan->transfers() < kOfRing, prefix <= kSeq - kOfRank);
    EXPECT_LE(plan->transfers(), plan_blocks(mask, kRanks, kOfClusters).transfers());
    EXPECT_LE(1 + plan->rounds.size(), size_t{kRanks});
  }
}

// Samples with a grid: of blocks on the diagonal, whose sizes are drawn, at most half of what a ring sends and its
// rounds; of random cells no more than a ring.
TEST(AdaptivePlan, GridsSendTheBlocksThatTheyShow) {
  constexpr int kRanks = 8;
  constexpr int64_t kCells = 64, kSeq = kCells * 4, kOfRing = kRanks * (kRanks - 1);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const std::vector<int64_t> ends = random_ends(kCells, 16, seed);
    for (const bool is_causal : {false, true}) {
      const auto grid = test::make_grid(kSeq, kCells, is_causal, [&](int64_t query, int64_t key) {
        return std::ranges::upper_bound(ends, query) == std::ranges::upper_bound(ends, key);
      });
      const auto plan = plan_grid(*grid, kRanks, kOfClusters);
      expect_valid(*plan, grid->coarse(kCells));
      EXPECT_LE(2 * plan->transfers(), kOfRing) << "seed " << seed;
      EXPECT_LE(2 * plan->rounds.size(), size_t{kRanks - 1}) << "seed " << seed;
    }
    const auto dense = test::make_grid(kSeq, kCells, false, test::random_cells(kCells, 50, seed));
    EXPECT_LE(plan_grid(*dense, kRanks, kOfClusters)->transfers(), kOfRing);
  }
}

// Cells of the plan are those of the grid, more where the ranks need them, and others where no number of both divides
// the sequence.
TEST(AdaptivePlan, GridsOfAnyNumberOfCells) {
  for (const int64_t cells : {1, 3, 5, 12}) {
    for (const int ranks : {1, 4}) {
      const auto grid = test::make_grid(60, cells, true, test::random_cells(cells, 40, 1));
      const int64_t common = std::lcm(cells, int64_t{ranks});
      expect_valid(*plan_grid(*grid, ranks, kOfSequence), grid->coarse(common));
    }
  }
  const auto odd = test::make_grid(36, 9, true, test::block_cells(3));  // 4 ranks, of 9 positions
  expect_valid(*plan_grid(*odd, 4, kOfSequence), odd->coarse(36));
}

// Positions that see every fourth one, which the order of the sequence scatters over all ranks.
TEST(AdaptivePlan, FindsClustersThatTheOrderOfTheSequenceHides) {
  constexpr int64_t kCells = 64;
  CoarseMask mask(kCells * 2, kCells);
  for (int64_t query = 0; query < kCells; ++query)
    for (int64_t key = query % 4; key <= query; key += 4) mask.show(query, key);
  const AdaptivePlan in_order = plan_blocks(mask, 4, kOfSequence), plan = plan_blocks(mask, 4, kOfClusters);
  expect_valid(in_order, mask);
  expect_valid(plan, mask);
  EXPECT_EQ(in_order.transfers(), 6);
  EXPECT_EQ(plan.transfers(), 0);
  EXPECT_EQ(plan.segments[0].size(), 16U);
  const AdaptivePlan again = plan_blocks(mask, 4, kOfClusters);  // the same on every rank
  for (size_t rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(std::ranges::equal(plan.segments[rank], again.segments[rank], {}, &Segment::first, &Segment::first));
}

TEST(AdaptivePlan, WithoutDocumentsPositionsStayInOrder) {
  const auto plan = plan_documents(48, 4, {}, kOfClusters);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(plan->segments[static_cast<size_t>(rank)].size(), 1U);
    EXPECT_EQ(plan->segments[static_cast<size_t>(rank)].front().first, 12 * rank);
    EXPECT_EQ(plan->received_by(rank), rank);
  }
  EXPECT_EQ(plan->transfers(), 6);
  EXPECT_EQ(plan->rounds.size(), 3U);
  EXPECT_EQ(plan_documents(48, 1, {}, kOfClusters)->transfers(), 0);
}

TEST(AdaptivePlan, NeighboursDivideThePositionsOfARank) {
  const auto plan = plan_documents(48, 2, {}, kOfSequence);
  for (int rank = 0; rank < 4; ++rank) {
    const SequenceShare share(plan, rank, 2);
    ASSERT_EQ(share.segments().size(), 1U);
    EXPECT_EQ(share.segments().front().first, 12 * rank);
    EXPECT_EQ(share.segments().front().count, 12);
  }
}

TEST(AdaptivePlan, TakesLessThanASecondAnd100MiB) {
  const std::vector<int64_t> ends = random_ends(65536, 200, 3);
  rusage before{}, behind{};
  getrusage(RUSAGE_SELF, &before);
  const double begin = cpu_seconds();
  const auto plan = plan_documents(65536, 8, ends, kOfClusters);
  EXPECT_LT(cpu_seconds() - begin, 1);
  getrusage(RUSAGE_SELF, &behind);
  EXPECT_LT(behind.ru_maxrss - before.ru_maxrss, 100 << 10);  // KiB
  EXPECT_GT(plan->transfers(), 0);
}

}  // namespace
}  // namespace ms::layout
