#include "core/layout/mask_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/layout/adaptive_plan.h"
#include "tests/support/mask_grids.h"

namespace ms::layout {
namespace {

using test::make_grid;

constexpr int64_t kSeq = 48;

struct GridCase {
  const char* name;
  int64_t cells;
  bool is_causal;
  test::SeesCell sees;
};
std::vector<GridCase> cases() {
  return {
      {"ones", 8, true, [](int64_t, int64_t) { return true; }},
      {"general ones", 8, false, [](int64_t, int64_t) { return true; }},
      {"blocks", 12, true, test::block_cells(3)},
      {"general blocks", 12, false, test::block_cells(3)},
      {"random", 6, true, test::random_cells(6, 40, 1)},
      {"general random", 16, false, test::random_cells(16, 30, 2)},
      {"cells of one position", kSeq, false, test::random_cells(kSeq, 20, 3)},
      {"a hidden diagonal", 6, true, [](int64_t query, int64_t key) { return key < query || query == 0; }},
      {"rows without keys", 6, false, [](int64_t query, int64_t key) { return query % 2 == 1 && key != query; }},
  };
}

// All positions of a sequence, and those of ranks that share it.
std::vector<SequenceShare> shares() {
  std::vector<SequenceShare> result = {{}};
  for (int rank = 0; rank < 4; ++rank) {
    result.emplace_back(ContextAlgorithm::kRing, kSeq, 4, rank);
    result.emplace_back(ContextAlgorithm::kUlysses, kSeq, 4, rank);
  }
  auto plan = std::make_shared<AdaptivePlan>();
  plan->seq_length = kSeq;
  plan->segments = {{{0, 5}, {9, 4}, {20, 15}}, {{5, 4}, {13, 7}, {35, 13}}};
  for (int rank = 0; rank < 2; ++rank) result.emplace_back(plan, rank);
  return result;
}
std::vector<int64_t> positions_of(const SequenceShare& share) {
  std::vector<int64_t> positions;
  const int64_t rows = share.is_whole() ? kSeq : share.rows_before(kSeq);
  share.for_each_run(0, rows, [&](int64_t, int64_t position, int64_t count) {
    for (int64_t i = 0; i < count; ++i) positions.push_back(position + i);
  });
  return positions;
}

// [queries, keys]: how often lists show a key to a query.
std::vector<int> shown(const RunLists& lists, int64_t queries, int64_t keys) {
  std::vector<int> times(static_cast<size_t>(queries * keys));
  int64_t row = 0, run = 0;
  for (const kernels::QuerySpan& span : lists.spans) {
    EXPECT_EQ(span.first, row) << "spans have all queries, in order";
    row += span.count;
    for (int64_t key = 0; run < span.runs_end; ++run) {
      const kernels::KeyRun& seen = lists.runs[static_cast<size_t>(run)];
      EXPECT_GE(seen.first, key) << "runs are in order";
      key = seen.first + seen.count;
      for (int64_t i = 0; i < span.count; ++i)
        for (int64_t j = 0; j < seen.count; ++j)
          if (!lists.is_causal || seen.position + j <= span.position + i)
            ++times[static_cast<size_t>((span.first + i) * keys + seen.first + j)];
    }
  }
  EXPECT_EQ(row, queries);
  EXPECT_EQ(run, static_cast<int64_t>(lists.runs.size()));
  return times;
}

TEST(MaskGrid, ListsShowEachVisibleKeyOnce) {
  for (const GridCase& of : cases()) {
    const auto grid = make_grid(kSeq, of.cells, of.is_causal, of.sees);
    for (const SequenceShare& queries : shares()) {
      for (const SequenceShare& keys : shares()) {
        SCOPED_TRACE(of.name);
        const std::vector<int64_t> rows = positions_of(queries), columns = positions_of(keys);
        for (const Segment part : {Segment{0, static_cast<int64_t>(rows.size())}, Segment{3, 7}}) {
          const auto most = static_cast<int64_t>(columns.size());
          for (const int64_t num_keys : {most, most - 5}) {
            const RunLists lists = grid_runs(*grid, queries, part, keys, num_keys);
            const std::vector<int> times = shown(lists, part.count, num_keys);
            for (int64_t i = 0; i < part.count; ++i) {
              for (int64_t j = 0; j < num_keys; ++j) {
                ASSERT_EQ(
                    times[static_cast<size_t>(i * num_keys + j)],
                    grid->sees(rows[static_cast<size_t>(part.first + i)], columns[static_cast<size_t>(j)]) ? 1 : 0)
                    << "query " << i << ", key " << j;
              }
            }
          }
        }
      }
    }
  }
}

// Kernels then compute what they compute for a causal mask, or for documents, in the same blocks.
TEST(MaskGrid, ListsAreAsShortAsTheyCanBe) {
  const auto size = [](const MaskGrid& grid) { return grid.whole().spans.size() * 1000 + grid.whole().runs.size(); };
  EXPECT_EQ(size(*make_grid(kSeq, 8, true, [](int64_t, int64_t) { return true; })), 1001U);
  EXPECT_EQ(size(*make_grid(kSeq, 8, false, [](int64_t, int64_t) { return true; })), 1001U);
  EXPECT_EQ(size(*make_grid(kSeq, 12, true, test::block_cells(3))), 4004U);
  EXPECT_EQ(size(*make_grid(kSeq, 12, false, test::block_cells(3))), 4004U);
  EXPECT_EQ(size(*make_grid(kSeq, 4, true, [](int64_t query, int64_t key) { return key == 0 || query == key; })), 3005U)
      << "the first two cells are a causal mask of both, which the third does not continue";
}

TEST(MaskGrid, CountsVisibleScores) {
  for (const GridCase& of : cases()) {
    const auto grid = make_grid(kSeq, of.cells, of.is_causal, of.sees);
    for (const Segment queries : {Segment{0, kSeq}, Segment{0, 1}, Segment{5, 20}, Segment{kSeq - 3, 3}}) {
      int64_t twice = 0;
      for (int64_t query = queries.first; query < queries.first + queries.count; ++query)
        for (int64_t key = 0; key < kSeq; ++key)
          if (grid->sees(query, key)) twice += of.is_causal && key == query ? 1 : 2;
      EXPECT_EQ(grid->visible_scores(queries.first, queries.count), twice) << of.name;
    }
  }
  EXPECT_EQ(make_grid(kSeq, 8, true, [](int64_t, int64_t) { return true; })->visible_scores(0, kSeq), kSeq * kSeq)
      << "as many as a causal mask has";
}

TEST(MaskGrid, CountsPairsAndPositionsWithALoss) {
  for (const GridCase& of : cases()) {
    const auto grid = make_grid(kSeq, of.cells, of.is_causal, of.sees);
    int64_t pairs = 0, with_loss = 0;
    for (int64_t query = 0; query < kSeq; ++query) {
      for (int64_t key = 0; key < kSeq; ++key) pairs += grid->sees(query, key) ? 1 : 0;
      with_loss += query + 1 < kSeq && grid->sees(query, query + 1) ? 0 : 1;
    }
    EXPECT_EQ(grid->visible_pairs(), pairs) << of.name;
    EXPECT_EQ(grid->positions_with_loss(), with_loss) << of.name;
  }
}

TEST(MaskGrid, CoarseCellsAreVisibleWhereAScoreIs) {
  for (const GridCase& of : cases()) {
    const auto grid = make_grid(kSeq, of.cells, of.is_causal, of.sees);
    for (const int64_t cells : {int64_t{3}, int64_t{4}, int64_t{16}, kSeq}) {
      const CoarseMask coarse = grid->coarse(cells);
      std::vector<uint8_t> seen(static_cast<size_t>(cells * cells));
      for (int64_t query = 0; query < kSeq; ++query)
        for (int64_t key = 0; key < kSeq; ++key)
          if (grid->sees(query, key))
            seen[static_cast<size_t>(query / coarse.positions() * cells + key / coarse.positions())] = 1;
      for (int64_t query = 0; query < cells; ++query)
        for (int64_t key = 0; key < cells; ++key)
          ASSERT_EQ(coarse.sees(query, key), seen[static_cast<size_t>(query * cells + key)] != 0)
              << of.name << ", cells " << query << " and " << key << " of " << cells;
    }
  }
}

TEST(MaskGrid, FindsTheFirstPositionWithoutKeys) {
  const auto seen = [](int64_t query, int64_t key) { return query != 2 || key > 2; };
  EXPECT_EQ(make_grid(kSeq, 6, true, seen)->blind_query(), 16) << "a causal query sees nothing behind it";
  EXPECT_EQ(make_grid(kSeq, 6, false, seen)->blind_query(), std::nullopt);
  EXPECT_EQ(
      make_grid(kSeq, 6, true, [](int64_t query, int64_t key) { return key < query || query == 0; })->blind_query(),
      std::nullopt);
}

TEST(MaskGrid, FingerprintsTellGridsApart) {
  const auto sees = test::random_cells(6, 40, 1);
  const uint64_t one = make_grid(kSeq, 6, true, sees)->fingerprint();
  EXPECT_EQ(make_grid(kSeq, 6, true, sees)->fingerprint(), one);
  EXPECT_NE(make_grid(kSeq, 6, false, sees)->fingerprint(), one);
  EXPECT_NE(
      make_grid(kSeq, 6, true, [&](int64_t query, int64_t key) { return sees(query, key) != (query == 4 && key == 2); })
          ->fingerprint(),
      one);
}

}  // namespace
}  // namespace ms::layout
