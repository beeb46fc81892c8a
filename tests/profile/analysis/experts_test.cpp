// The load of experts and what it costs, from traces with known counts and times.
#include "profile/analysis/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/job_traces.h"
#include "tests/support/thrown.h"

namespace ms::profile {
namespace {

using core::trace::expert_counter_name;
using core::trace::expert_exchange_name;
using core::trace::ExpertCount;
using core::trace::ExpertExchange;
using core::trace::ExpertLayer;
using testing::ElementsAre;
using testing::Pair;

constexpr ExpertLayer kFirst = {-1, 0}, kSecond = {-1, 1};

class ExpertsTest : public JobTest {
 protected:
  struct ExpertRank : Rank {
    using Rank::Rank;
    void exchange(ExpertExchange what, const ExpertLayer& layer, int64_t from, int64_t to) {
      host(expert_exchange_name(what, layer).c_str(), from, to);
      maker.comm("alltoall", "ep", {0, 1}, from * kUnit, to * kUnit);
    }
    void count(const ExpertLayer& layer, int64_t first, const std::vector<int64_t>& tokens, int64_t at,
               ExpertCount what = ExpertCount::kRows) {
      for (const int64_t count : tokens)
        maker.counter(expert_counter_name({layer, first++, what}), at * kUnit, static_cast<double>(count));
    }
  };

  // Two ranks with two of four experts each. In step 1 rank 0 has nearly all tokens of the first layer: it computes
  // from 14 to 50, rank 1 until 24, and then from 26 to 32 what needs no result of the exchange.
  void load_uneven() {
    ExpertRank zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
    for (ExpertRank* rank : {&zero, &one}) {
      rank->host("ProfilerStep#1", 0, 100);
      rank->host("ProfilerStep#2", 100, 200);
    }
    zero.exchange(ExpertExchange::kDispatch, kFirst, 10, 14);
    one.exchange(ExpertExchange::kDispatch, kFirst, 12, 14);
    zero.kernel("gemm", 14, 50);
    one.kernel("gemm", 14, 24);
    one.kernel("shared", 26, 32);
    zero.exchange(ExpertExchange::kCombine, kFirst, 50, 54);
    one.exchange(ExpertExchange::kCombine, kFirst, 24, 54);
    zero.maker.comm("alltoall", "ep", {0, 1}, 70 * kUnit, 75 * kUnit);  // of another kind
    one.maker.comm("alltoall", "ep", {0, 1}, 60 * kUnit, 75 * kUnit);
    zero.exchange(ExpertExchange::kCombineGradient, kSecond, 110, 130);
    one.exchange(ExpertExchange::kCombineGradient, kSecond, 125, 130);
    zero.count(kFirst, 0, {90, 0}, 80);
    one.count(kFirst, 2, {6, 4}, 80);
    for (const int64_t at : {80, 100}) {
      zero.count(kSecond, 0, {5, 5}, at);
      one.count(kSecond, 2, {5, 5}, at);
    }
    zero.maker.finish();
    one.maker.finish();
    load_all();
  }
  ExpertUse use(const ExpertOptions& options = {}) {
    const auto found = expert_use(devices_, cross_, options);
    EXPECT_TRUE(found);
    return found.value_or(ExpertUse{});
  }
};

TEST(Unevenness, IsOfKnownCounts) {
  const Unevenness uneven = unevenness({90, 0, 6, kUnknownTokens, 4});
  EXPECT_EQ(uneven.largest, 0);
  EXPECT_DOUBLE_EQ(uneven.max_of_mean, 3.6);
  EXPECT_NEAR(uneven.cv, 1.503596, 1e-6);  // sqrt((65^2 + 25^2 + 19^2 + 21^2) / 4) / 25
  EXPECT_EQ(unevenness({0, 0}).largest, -1);
  EXPECT_EQ(unevenness({}).max_of_mean, 0);
  EXPECT_EQ(unevenness({7, 7}).cv, 0);
}

TEST_F(ExpertsTest, LoadOfLayersExpertsAndRanks) {
  load_uneven();
  const ExpertUse all = use();
  EXPECT_EQ(all.source, ExpertSource::kRows);
  ASSERT_EQ(all.layers.size(), 2U);
  const ExpertLayerUse& first = all.layers[0];
  EXPECT_THAT(first.tokens, ElementsAre(90, 0, 6, 4));
  EXPECT_THAT(first.holders, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(first.by_rank, ElementsAre(Pair(0, 90), Pair(1, 10)));
  EXPECT_DOUBLE_EQ(first.of_experts.max_of_mean, 3.6);
  EXPECT_DOUBLE_EQ(first.of_ranks.max_of_mean, 1.8);
  EXPECT_EQ(first.of_ranks.largest, 0);
  EXPECT_THAT(first.hot, ElementsAre(0));
  EXPECT_THAT(first.dead, ElementsAre(1));
  EXPECT_THAT(all.layers[1].tokens, ElementsAre(10, 10, 10, 10)) << "of both steps";
  EXPECT_EQ(all.layers[1].of_experts.cv, 0);
  ASSERT_EQ(all.ranks.size(), 2U);
  EXPECT_EQ(all.ranks[0].tokens, 110);
  EXPECT_DOUBLE_EQ(all.ranks[0].of_mean, 110 / 70.0);
}

TEST_F(ExpertsTest, RanksCompareWithThoseOfTheirLayers) {
  ExpertRank ranks[] = {{folder_.path(), 0, 3}, {folder_.path(), 1, 3}, {folder_.path(), 2, 3}};
  for (int rank = 0; rank < 2; ++rank) {  // of the stage that has two layers with experts
    ranks[rank].count(kFirst, 2 * rank, {5, 5}, 80);
    ranks[rank].count(kSecond, 2 * rank, {5, rank == 0 ? 5 : 25}, 80);
  }
  ranks[2].count({-1, 2}, 0, {5, 5, 5, 5}, 80);
  for (ExpertRank& rank : ranks) rank.maker.finish();
  load_all();
  const ExpertUse all = use();
  ASSERT_EQ(all.ranks.size(), 3U);
  EXPECT_DOUBLE_EQ(all.ranks[0].of_mean, 20 / 30.0);
  EXPECT_DOUBLE_EQ(all.ranks[1].of_mean, 40 / 30.0);
  EXPECT_DOUBLE_EQ(all.ranks[2].of_mean, 1) << "alone in its stage";
}

TEST_F(ExpertsTest, WaitingIsOfTheAnnotatedExchangesWithoutWhatHidesIt) {
  load_uneven();
  const ExpertUse all = use();
  const auto wait = [&](size_t layer, ExpertExchange exchange) {
    return all.layers[layer].exchanges[static_cast<size_t>(exchange)].wait_ns / kUnit;
  };
  EXPECT_EQ(wait(0, ExpertExchange::kDispatch), 2);
  EXPECT_EQ(wait(0, ExpertExchange::kCombine), 20) << "from 24 to 50, but for the 6 of computing";
  EXPECT_EQ(wait(1, ExpertExchange::kCombineGradient), 15);
  EXPECT_EQ(all.layers[0].wait_ns(), 22 * kUnit);
  EXPECT_EQ(all.wait_ns, 37 * kUnit);
  ASSERT_EQ(all.waits.size(), 3U);
  EXPECT_EQ(all.waits[0].layer, kFirst);
  EXPECT_EQ(all.waits[0].rank, 1);
  EXPECT_EQ(all.waits[0].waits_for, 0);
  EXPECT_EQ(all.waits[0].wait_ns, 20 * kUnit);
  EXPECT_EQ(all.ranks[0].wait_ns, 17 * kUnit);
  EXPECT_EQ(all.ranks[0].blame_ns, 20 * kUnit);
  EXPECT_EQ(all.ranks[0].times_last, 1);
  EXPECT_EQ(all.ranks[0].instances, 3);
}

TEST_F(ExpertsTest, StepsAreSeparate) {
  load_uneven();
  const ExpertUse all = use();
  ASSERT_EQ(all.steps.size(), 2U);
  EXPECT_EQ(all.steps[0].step, 1);
  EXPECT_EQ(all.steps[0].tokens, 120);
  EXPECT_DOUBLE_EQ(all.steps[0].max_of_mean, (3.6 + 1) / 2);
  EXPECT_EQ(all.steps[0].worst_layer, kFirst);
  EXPECT_EQ(all.steps[0].worst.largest, 0);
  EXPECT_EQ(all.steps[0].wait_ns, 22 * kUnit);
  EXPECT_EQ(all.steps[1].tokens, 20);
  EXPECT_DOUBLE_EQ(all.steps[1].max_of_mean, 1);
  EXPECT_EQ(all.steps[1].wait_ns, 15 * kUnit);
}

// As in routing traces, whose steps follow one another without a gap.
TEST_F(ExpertsTest, CountsAtTheEndOfAStepAreOfTheNext) {
  load_uneven();
  load_all(std::vector<int64_t>{1});
  const ExpertUse one = use();
  ASSERT_EQ(one.steps.size(), 1U);
  EXPECT_EQ(one.steps[0].tokens, 120);
}

TEST_F(ExpertsTest, ExpertsOfARankWithoutATraceAreUnknown) {
  load_uneven();
  devices_.erase(devices_.begin());
  cross_ = cross_rank(devices_, match_comms(devices_), AlignMode::kAuto);
  const ExpertUse one = use();
  EXPECT_THAT(one.layers[0].tokens, ElementsAre(kUnknownTokens, kUnknownTokens, 6, 4));
  EXPECT_TRUE(one.layers[0].dead.empty());
  EXPECT_DOUBLE_EQ(one.layers[0].of_experts.max_of_mean, 1.2);
  EXPECT_EQ(one.wait_ns, 0);
}

TEST_F(ExpertsTest, RanksThatShareExpertsCountTheirRowsOnce) {
  ExpertRank zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
  zero.kernel("gemm", 0, 90);
  one.kernel("gemm", 0, 90);
  zero.count(kFirst, 0, {8, 2}, 50);
  one.count(kFirst, 0, {8, 2}, 50, ExpertCount::kPartRows);
  zero.maker.finish();
  one.maker.finish();
  load_all();
  const ExpertUse all = use();
  EXPECT_THAT(all.layers[0].tokens, ElementsAre(8, 2));
  EXPECT_THAT(all.layers[0].by_rank, ElementsAre(Pair(0, 10), Pair(1, 10)));
  EXPECT_EQ(all.steps[0].step, -1);
}

TEST_F(ExpertsTest, ChoicesAreSharedOutOverRanksThatTheUserGives) {
  ExpertRank zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
  for (ExpertRank* rank : {&zero, &one}) {
    rank->kernel("gemm", 0, 90);
    rank->count(kFirst, 0, {8, 2, 2}, 50, ExpertCount::kChosen);
    rank->maker.finish();
  }
  load_all();
  EXPECT_THAT(use().layers[0].tokens, ElementsAre(16, 4, 4)) << "of all ranks";
  const ExpertUse four = use({.num_experts = 4, .expert_parallel = 2});
  EXPECT_THAT(four.layers[0].tokens, ElementsAre(16, 4, 4, 0));
  EXPECT_THAT(four.layers[0].by_rank, ElementsAre(Pair(0, 20), Pair(1, 4)));
  EXPECT_THAT(four.layers[0].holders, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(four.layers[0].dead, ElementsAre(3));
  EXPECT_TRUE(four.by_expert_rank);
  const auto error_of = [&](const ExpertOptions& options) {
    return ms::test::thrown_by([&] { expert_use(devices_, cross_, options); }).text;
  };
  EXPECT_EQ(error_of({.num_experts = 2}), "--num-experts 2: the records have tokens of expert 2");
  EXPECT_EQ(error_of({.expert_parallel = 2}),
            "--expert-model-parallel-size 2: does not divide the 3 experts of a layer; give their number by "
            "--num-experts");
}

// Expert 0 moves from rank 0 to rank 1 after the first step.
TEST_F(ExpertsTest, ExpertsThatMoveCountWhereTheyAre) {
  ExpertRank zero(folder_.path(), 0, 2), one(folder_.path(), 1, 2);
  for (ExpertRank* rank : {&zero, &one}) {
    rank->host("ProfilerStep#1", 0, 100);
    rank->host("ProfilerStep#2", 100, 200);
    rank->kernel("gemm", 0, 190);
  }
  const auto count = [&](int64_t expert, int64_t rank, double tokens, int64_t at) {
    zero.maker.counter(expert_counter_name({kFirst, expert, ExpertCount::kAllTokens, rank}), at * kUnit, tokens);
  };
  count(0, 0, 9, 50), count(1, 1, 1, 50);
  count(0, 1, 8, 150), count(1, 0, 2, 150);
  zero.maker.finish();
  one.maker.finish();
  load_all();
  for (const int64_t ranks : {0, 2}) {
    const ExpertUse moved = use({.expert_parallel = ranks});
    EXPECT_TRUE(moved.by_expert_rank);
    EXPECT_THAT(moved.layers[0].tokens, ElementsAre(17, 3));
    EXPECT_THAT(moved.layers[0].by_rank, ElementsAre(Pair(0, 11), Pair(1, 9)));
    EXPECT_THAT(moved.layers[0].holders, ElementsAre(1, 0));
  }
}

TEST_F(ExpertsTest, TracesOfOtherModelsHaveNone) {
  load_chain();
  EXPECT_FALSE(expert_use(devices_, cross_, {}));
}

}  // namespace
}  // namespace ms::profile
