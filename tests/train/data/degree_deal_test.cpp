// A deal with a number of ranks for each micro-batch: no sample is lost, none has too few ranks, and ranks have about
// as much to compute.
#include "train/data/degree_deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "tests/support/log_normal_documents.h"

namespace ms::train {
namespace {

std::vector<double> squares(const std::vector<int64_t>& lengths) {
  std::vector<double> costs;
  for (const int64_t length : lengths) costs.push_back(static_cast<double>(length) * static_cast<double>(length));
  return costs;
}

// What each rank has of the costs, by the samples that choose_samples() gives it; every sample must have the ranks of
// its round, neighbours, and no fewer than it needs.
std::vector<double> sums_of_ranks(const DegreeDeal& deal, const DegreeSettings& settings,
                                  const std::vector<int64_t>& lengths, const std::vector<double>& costs) {
  const int ranks = settings.dp * settings.cp;
  std::vector<double> sums(static_cast<size_t>(ranks));
  std::vector<std::map<int64_t, std::vector<int>>> of_round(deal.degrees.size());  // sample: its ranks
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Microbatch> batch;
    choose_samples(deal, settings, 1000, rank, batch);
    EXPECT_EQ(batch.size(), deal.degrees.size());
    for (size_t round = 0; round < batch.size(); ++round) {
      EXPECT_EQ(static_cast<int64_t>(batch[round].samples.size()), settings.micro_batch_size);
      for (const int64_t sample : batch[round].samples) {
        of_round[round][sample - 1000].push_back(rank);
        sums[static_cast<size_t>(rank)] += costs.at(static_cast<size_t>(sample - 1000)) / deal.degrees[round];
      }
    }
  }
  std::set<int64_t> seen;
  for (size_t round = 0; round < of_round.size(); ++round) {
    const int degree = deal.degrees[round];
    for (const auto& [sample, of] : of_round[round]) {
      EXPECT_TRUE(seen.insert(sample).second) << sample << " in two rounds";
      EXPECT_EQ(static_cast<int>(of.size()), degree);
      EXPECT_EQ(of.front() % degree, 0);
      EXPECT_EQ(of.back() - of.front(), degree - 1);
      EXPECT_LE(lengths[static_cast<size_t>(sample)], degree * settings.max_rows);
    }
  }
  EXPECT_EQ(seen.size(), lengths.size()) << "samples are missing";
  return sums;
}

double slowest(const std::vector<double>& sums) {
  double all = 0;
  for (const double sum : sums) all += sum;
  return *std::max_element(sums.begin(), sums.end()) * static_cast<double>(sums.size()) / all;
}

TEST(DegreeDeal, GivesASampleTheFewestRanksThatHoldIt) {
  // Of 4 ranks: 33 tokens at most 16 on a rank need 4, and 17 need 2.
  const std::vector<int64_t> lengths = {16, 33, 17, 15, 18, 14, 13};
  const DegreeSettings settings{.dp = 1, .cp = 4, .max_rows = 16};
  const DegreeDeal deal = deal_by_degree(lengths, squares(lengths), settings);
  EXPECT_EQ(deal.degrees, (std::vector<int>{4, 2, 1}));
  EXPECT_EQ(deal.order, (std::vector<int64_t>{1, 4, 2, 5, 6, 0, 3}));  // the costlier of the last to those with less
  EXPECT_EQ(deal.cost.rounds[0], 1);
  EXPECT_EQ(deal.cost.rounds[1], 1);
  EXPECT_EQ(deal.cost.rounds[2], 1);
  for (const int degree : {1, 2, 4, 8}) {
    EXPECT_EQ(layout::context_degree(16 * degree, 16), degree);
    EXPECT_EQ(layout::context_degree(16 * degree + 1, 16), 2 * degree);
  }
}

TEST(DegreeDeal, FillsEveryRoundByMoreRanksForTheLongest) {
  const std::vector<int64_t> lengths = {5, 9, 8, 7, 6};
  const DegreeDeal deal = deal_by_degree(lengths, std::vector<double>(5, 1), {.dp = 1, .cp = 4, .max_rows = 16});
  EXPECT_EQ(deal.degrees, (std::vector<int>{4, 1}));
  EXPECT_EQ(deal.order.front(), 1);
  EXPECT_TRUE(deal_by_degree({}, {}, {.dp = 2, .cp = 4, .max_rows = 16}).degrees.empty());
  EXPECT_THROW(deal_by_degree(lengths, std::vector<double>(5), {.dp = 2, .cp = 2, .max_rows = 16}), core::Error);
  EXPECT_THROW(deal_by_degree(lengths, std::vector<double>(5), {.dp = 1, .cp = 4, .max_rows = 2}), core::Error);
}

TEST(DegreeDeal, SharesASampleThatCostsMoreThanItsRoundByMoreRanks) {
  const std::vector<int64_t> lengths = {16, 2, 2, 2};
  const DegreeSettings settings{.dp = 1, .cp = 4, .max_rows = 16};
  const DegreeDeal deal = deal_by_degree(lengths, squares(lengths), settings);
  EXPECT_EQ(deal.degrees.front(), 4);
  EXPECT_LT(deal.cost.slowest, 1.1);
}

TEST(DegreeDeal, LosesNoSampleAndIsAsEvenAsItSays) {
  for (const auto& [dp, cp] : {std::pair{1, 1}, {3, 1}, {1, 4}, {2, 4}, {3, 2}, {1, 8}}) {
    for (const int64_t micro_batch_size : {1, 3}) {
      for (const int64_t of_replica : {1, 2, 5, 16}) {
        SCOPED_TRACE(core::cat(dp, " x ", cp, " ranks, ", of_replica, " micro-batches of ", micro_batch_size));
        std::vector<int64_t> lengths = test::log_normal_lengths(dp * of_replica * micro_batch_size, 12, 1.3, 5);
        for (int64_t& length : lengths) length = std::min<int64_t>(length, 16 * cp);
        const DegreeSettings settings{.dp = dp, .cp = cp, .max_rows = 16, .micro_batch_size = micro_batch_size};
        const DegreeDeal deal = deal_by_degree(lengths, squares(lengths), settings);
        EXPECT_NEAR(slowest(sums_of_ranks(deal, settings, lengths, squares(lengths))), deal.cost.slowest, 1e-12);
        int64_t rounds = 0;
        for (const int64_t of : deal.cost.rounds) rounds += of;
        EXPECT_EQ(rounds, static_cast<int64_t>(deal.degrees.size()));
      }
    }
  }
}

// Attention alone, of 32 documents for each of 64 ranks, up to 16 times as long as what one rank holds.
TEST(DegreeDeal, BringsTheSlowestOf64RanksWithinATenthOfTheMean) {
  for (const auto& [dp, cp] : {std::pair{4, 16}, {1, 64}}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(core::cat(dp, " x ", cp, " ranks, seed ", seed));
      std::vector<int64_t> lengths = test::log_normal_lengths(64 * 32, 600, 1.2, seed);
      for (int64_t& length : lengths) length = std::min<int64_t>(length, 16 * 1024);
      const DegreeSettings settings{.dp = dp, .cp = cp, .max_rows = 1024};
      const std::vector<double> costs = squares(lengths);
      const DegreeDeal deal = deal_by_degree(lengths, costs, settings);
      EXPECT_LT(deal.cost.slowest, 1.1);
      EXPECT_NEAR(slowest(sums_of_ranks(deal, settings, lengths, costs)), deal.cost.slowest, 1e-12);
      // Most documents fit on one rank, and share nothing.
      EXPECT_GE(deal.cost.rounds[0], 20);
    }
  }
}

}  // namespace
}  // namespace ms::train
