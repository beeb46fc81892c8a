#include "core/layout/context_parallel.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ms::layout {
namespace {

constexpr int64_t kSeq = 48;

std::vector<int64_t> positions_of(const SequenceShare& share, int64_t begin, int64_t end) {
  std::vector<int64_t> positions;
  share.for_each_run(begin, end, [&](int64_t row, int64_t position, int64_t count) {
    EXPECT_EQ(row, begin + static_cast<int64_t>(positions.size()));
    for (int64_t i = 0; i < count; ++i) positions.push_back(position + i);
  });
  return positions;
}

TEST(SequenceShare, EveryPositionIsOfOneRank) {
  for (const ContextAlgorithm algorithm :
       {ContextAlgorithm::kUlysses, ContextAlgorithm::kKvAllgather, ContextAlgorithm::kRing}) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      std::set<int64_t> all;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int64_t> own = positions_of({algorithm, kSeq, ranks, rank}, 0, kSeq / ranks);
        EXPECT_EQ(own.size(), static_cast<size_t>(kSeq / ranks));
        EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
        all.insert(own.begin(), own.end());
      }
      EXPECT_EQ(all.size(), static_cast<size_t>(kSeq));
      EXPECT_EQ(*all.begin(), 0);
      EXPECT_EQ(*all.rbegin(), kSeq - 1);
    }
  }
}

// The parts from the front of neighbours, and then those from the back, from the last of them to the first, are the
// parts of a rank of a ring; of all ranks, the sequence.
TEST(SequenceShare, NeighboursTogetherHaveAPlaceInTheRing) {
  for (const auto& [ranks, degree] : {std::pair{4, 2}, {8, 2}, {8, 4}, {6, 3}, {4, 1}, {4, 4}}) {
    for (int place = 0; place < ranks / degree; ++place) {
      std::vector<int64_t> together;
      const auto add_half = [&](int rank, int64_t half) {
        const SequenceShare share(ContextAlgorithm::kHybrid, kSeq, ranks, rank);
        const int64_t part = kSeq / ranks / 2;
        const std::vector<int64_t> own = positions_of(share, half * part, (half + 1) * part);
        together.insert(together.end(), own.begin(), own.end());
      };
      for (int i = 0; i < degree; ++i) add_half(place * degree + i, 0);
      for (int i = degree; i-- > 0;) add_half(place * degree + i, 1);
      const SequenceShare of_ring(ContextAlgorithm::kRing, kSeq, ranks / degree, place);
      EXPECT_EQ(together, positions_of(of_ring, 0, kSeq * degree / ranks)) << ranks << " ranks, " << degree;
    }
  }
}

TEST(ContextParts, AreOfAllRanks) {
  const auto parts = [](ContextAlgorithm algorithm, int ulysses_degree, int window) {
    const ContextParts of = context_parts(algorithm, 8, ulysses_degree, window);
    return std::vector<int>{of.ulysses, of.window, of.ring};
  };
  EXPECT_EQ(parts(ContextAlgorithm::kUlysses, 1, 1), (std::vector<int>{8, 1, 1}));
  EXPECT_EQ(parts(ContextAlgorithm::kKvAllgather, 1, 1), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(parts(ContextAlgorithm::kRing, 1, 1), (std::vector<int>{1, 1, 8}));
  EXPECT_EQ(parts(ContextAlgorithm::kRing, 1, 4), (std::vector<int>{1, 4, 2}));
  EXPECT_EQ(parts(ContextAlgorithm::kHybrid, 2, 2), (std::vector<int>{2, 2, 2}));
}

TEST(SequenceShare, CausalScoresAreBalancedWhereQueriesStay) {
  for (int rank = 0; rank < 4; ++rank) {
    int64_t scores = 0;
    for (const int64_t position : positions_of({ContextAlgorithm::kKvAllgather, kSeq, 4, rank}, 0, kSeq / 4))
      scores += 2 * position + 1;
    EXPECT_EQ(scores, kSeq * kSeq / 4) << rank;
  }
}

TEST(SequenceShare, RunsAreOfAnyRows) {
  const SequenceShare share(ContextAlgorithm::kKvAllgather, 16, 2, 1);  // 4 .. 7 and 8 .. 11
  EXPECT_EQ(positions_of(share, 0, 8), (std::vector<int64_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  const SequenceShare front(ContextAlgorithm::kKvAllgather, 16, 2, 0);  // 0 .. 3 and 12 .. 15
  EXPECT_EQ(positions_of(front, 2, 6), (std::vector<int64_t>{2, 3, 12, 13}));
  EXPECT_EQ(positions_of(front, 4, 8), (std::vector<int64_t>{12, 13, 14, 15}));
  EXPECT_EQ(positions_of({}, 3, 5), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(front.rows_before(0), 0);
  EXPECT_EQ(front.rows_before(3), 3);
  EXPECT_EQ(front.rows_before(12), 4);
  EXPECT_EQ(front.rows_before(14), 6);
  EXPECT_EQ(front.rows_before(16), 8);
  EXPECT_EQ(SequenceShare().rows_before(5), 5);
  EXPECT_TRUE(SequenceShare(ContextAlgorithm::kUlysses, 16, 1, 0).is_whole());
  EXPECT_THROW(SequenceShare(ContextAlgorithm::kKvAllgather, 18, 2, 0), core::Error);
}

TEST(KeyCopies, AreAsFewAsLeaveWholeHeads) {
  EXPECT_EQ(key_copies(4, 2), 1);
  EXPECT_EQ(key_copies(4, 4), 1);
  EXPECT_EQ(key_copies(1, 4), 4);
  EXPECT_EQ(key_copies(2, 8), 4);
  EXPECT_EQ(key_copies(3, 2), 2);
}

}  // namespace
}  // namespace ms::layout
