// A deal of samples by cost: every rank has as many, about as much to compute, and none is lost.
#include "train/data/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "tests/support/log_normal_documents.h"
#include "train/data/sampler.h"

namespace ms::train {
namespace {

// What each rank has of the costs, by the samples that choose_samples() gives it.
std::vector<double> sums_of_ranks(const std::vector<double>& costs, const std::vector<int64_t>& order, int ranks,
                                  int64_t micro_batch_size) {
  std::vector<double> sums;
  std::set<int64_t> seen;
  for (int rank = 0; rank < ranks; ++rank) {
    const SamplerPosition position{.consumed_samples = 1000,
                                   .data_parallel_rank = rank,
                                   .data_parallel_size = ranks,
                                   .micro_batch_size = micro_batch_size,
                                   .num_microbatches = static_cast<int64_t>(costs.size()) / (ranks * micro_batch_size),
                                   .order = order};
    std::vector<Microbatch> batch;
    choose_samples(position, batch);
    double& sum = sums.emplace_back(0);
    for (const Microbatch& microbatch : batch) {
      EXPECT_EQ(static_cast<int64_t>(microbatch.samples.size()), micro_batch_size);
      for (const int64_t sample : microbatch.samples) {
        EXPECT_TRUE(seen.insert(sample).second) << sample << " twice";
        sum += costs.at(static_cast<size_t>(sample - 1000));
      }
    }
  }
  EXPECT_EQ(seen.size(), costs.size()) << "samples are missing";
  return sums;
}

double slowest(const std::vector<double>& sums) {
  double all = 0;
  for (const double sum : sums) all += sum;
  return *std::max_element(sums.begin(), sums.end()) * static_cast<double>(sums.size()) / all;
}

// Squares of the lengths of the documents in rows of seq tokens, which are cut where a row ends.
std::vector<double> rows_of_documents(int64_t rows, int64_t seq, double median, double sigma, uint64_t seed) {
  std::vector<double> costs(static_cast<size_t>(rows));
  const auto enough = static_cast<int64_t>(3 * static_cast<double>(rows * seq) / median);
  const std::vector<int64_t> lengths = test::log_normal_lengths(enough, median, sigma, seed);
  int64_t filled = 0;
  for (size_t document = 0; filled < rows * seq; ++document) {
    for (int64_t left = lengths[document]; left > 0 && filled < rows * seq;) {
      const int64_t part = std::min(left, seq - filled % seq);
      costs[static_cast<size_t>(filled / seq)] += static_cast<double>(part) * static_cast<double>(part);
      left -= part, filled += part;
    }
  }
  return costs;
}

TEST(Deal, GivesTheCostliestOfARoundToTheRankWithTheLeast) {
  const std::vector<double> costs = {1, 9, 2, 7, 8, 3};  // rounds 9 8 | 7 3 | 2 1
  const Deal deal = deal_by_cost(costs, 2, 1);
  EXPECT_EQ(deal.order, (std::vector<int64_t>{1, 4, 5, 3, 2, 0}));
  EXPECT_DOUBLE_EQ(deal.cost.slowest, 16.0 / 15);
  EXPECT_DOUBLE_EQ(deal.cost.slowest_in_order, 19.0 / 15);
}

TEST(Deal, KeepsAnOrderThatIsEvenAlready) {
  for (const std::vector<double>& costs : {std::vector<double>{3, 3, 3, 3}, {5, 4, 1, 2}, {0, 0, 0, 0}}) {
    EXPECT_EQ(deal_by_cost(costs, 2, 1).order, (std::vector<int64_t>{0, 1, 2, 3}));
  }
  EXPECT_TRUE(deal_by_cost({}, 4, 2).order.empty());
  EXPECT_THROW(deal_by_cost(std::vector<double>(6), 4, 1), core::Error);
}

TEST(Deal, LosesNoSampleAndIsAsEvenAsItSays) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const int64_t micro_batch_size : {1, 2, 5}) {
      SCOPED_TRACE(core::cat(ranks, " ranks, micro-batches of ", micro_batch_size));
      const std::vector<double> costs = rows_of_documents(ranks * micro_batch_size * 3, 64, 20, 1, 7);
      const Deal deal = deal_by_cost(costs, ranks, micro_batch_size);
      EXPECT_NEAR(slowest(sums_of_ranks(costs, deal.order, ranks, micro_batch_size)), deal.cost.slowest, 1e-12);
      EXPECT_NEAR(slowest(sums_of_ranks(costs, {}, ranks, micro_batch_size)), deal.cost.slowest_in_order, 1e-12);
      EXPECT_LE(deal.cost.slowest, deal.cost.slowest_in_order);
    }
  }
}

// Attention alone, of rows of 8192 tokens, 8 to each rank, and of single documents up to 4096 tokens, 32 to each.
TEST(Deal, BringsTheSlowestOf64RanksWithinATenthOfTheMean) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const Deal packed = deal_by_cost(rows_of_documents(64 * 8, 8192, 600, 1.2, seed), 64, 1);
    EXPECT_LT(packed.cost.slowest, 1.1);
    EXPECT_GT(packed.cost.slowest_in_order, 1.3);
    std::vector<double> single;
    for (const int64_t length : test::log_normal_lengths(64 * 32, 600, 1.2, seed)) {
      const auto tokens = static_cast<double>(std::min<int64_t>(length, 4096));
      single.push_back(tokens * tokens);
    }
    const Deal documents = deal_by_cost(single, 64, 1);
    EXPECT_LT(documents.cost.slowest, 1.1);
    EXPECT_GT(documents.cost.slowest_in_order, 1.3);
  }
}

}  // namespace
}  // namespace ms::train
