#include "train/loop/expert_load.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/thread_comm.h"
#include "tests/support/thrown.h"
#include "train/loop/metrics.h"

namespace ms::train {
namespace {

LayerLoad load_of(std::vector<int64_t> tokens, double aux = 0, int64_t microbatches = 1) {
  LayerLoad load;
  load.tokens = std::move(tokens);
  load.losses.aux = aux;
  load.microbatches = microbatches;
  return load;
}

TEST(ExpertLoad, HotAndDeadExpertsAreNamedByLayer) {
  EXPECT_EQ(hot_and_dead_experts({}), "");
  EXPECT_EQ(hot_and_dead_experts({{0, load_of({3, 5})}, {1, load_of({4, 4})}}), "");
  EXPECT_EQ(hot_and_dead_experts({{0, load_of({0, 9, 0, 3})}, {2, load_of({1, 1, 1, 9})}}),
            "hot experts: layer 0: 1 (3.0 x), layer 2: 3 (3.0 x); dead experts: layer 0: 0 2");
  EXPECT_EQ(hot_and_dead_experts({{1, load_of({2, 0, 2})}}), "dead experts: layer 1: 1");
  EXPECT_EQ(hot_and_dead_experts({{1, load_of({0, 0})}}), "") << "a step without tokens";
  std::vector<int64_t> many(20);
  many[0] = many[1] = 1;
  EXPECT_EQ(hot_and_dead_experts({{7, load_of(many)}}),
            "hot experts: layer 7: 0 (10.0 x) 1 (10.0 x); dead experts: layer 7: 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "
            "17, and 2 more");
}

TEST(ExpertLoad, BusiestExpertIsThatOfTheMostUnevenLayer) {
  const BusiestExpert busiest = busiest_expert({{0, load_of({5, 3})}, {3, load_of({2, 6, 1})}});
  EXPECT_EQ(busiest.layer, 3);
  EXPECT_EQ(busiest.expert, 1);
  EXPECT_DOUBLE_EQ(busiest.share, 2);
}

TEST(ExpertLoad, DroppedChoicesAreAShareOfAll) {
  LayerLoad crowded = load_of({5, 5});
  crowded.dropped = 30;
  EXPECT_DOUBLE_EQ(dropped_share({{0, load_of({10, 10})}, {1, crowded}}), 0.5);
  EXPECT_EQ(dropped_share({{0, load_of({1, 0})}}), 0);
}

// Two ranks with a layer each, and one that both have.
TEST(ExpertLoad, RanksAndMicroBatchesAddUp) {
  core::TransformerConfig model;
  model.num_layers = 4;
  model.num_experts = 2;
  model.moe_layer_freq = "([0,1,1,1])";
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator world(endpoint, "world", {0, 1}, 0);
    const int rank = endpoint.rank();
    RoutingStatistics own;
    own.add(1, {.tokens = {3, 1}, .received = 4, .losses = {.aux = 1.5}, .microbatches = 1});
    own.add(1, {.tokens = {2, 2}, .received = 4, .dropped = 1, .losses = {.aux = 0.5}, .microbatches = 1});
    own.add(2 + rank, {.tokens = {rank, 4}, .received = rank + 4, .losses = {.z = 2}, .microbatches = 1});
    const ExpertLoads loads = sum_over_ranks(world, model, own);
    ASSERT_EQ(loads.size(), 3U);
    EXPECT_EQ(loads.at(1).tokens, (std::vector<int64_t>{10, 6}));
    EXPECT_EQ(loads.at(1).dropped, 2);
    EXPECT_EQ(loads.at(1).microbatches, 4);
    EXPECT_EQ(loads.at(2).tokens, (std::vector<int64_t>{0, 4}));
    EXPECT_EQ(loads.at(3).tokens, (std::vector<int64_t>{1, 4}));
    EXPECT_DOUBLE_EQ(mean_losses(loads).aux, 1.0 / 3);  // a layer of three
    EXPECT_DOUBLE_EQ(mean_losses(loads).z, 4.0 / 3);
  });
}

// Experts of two ranks, of which each has received rows of both.
TEST(ExpertLoad, EveryRowThatIsSentIsReceived) {
  core::TransformerConfig model;
  model.num_layers = 1;
  model.num_experts = 2;
  test::run_thread_ranks(2, [&](core::Endpoint& endpoint) {
    core::Communicator world(endpoint, "world", {0, 1}, 0);
    RoutingStatistics own;
    own.add(0, {.tokens = {3, 1}, .received = endpoint.rank() == 0 ? 6 : 2});
    EXPECT_EQ(sum_over_ranks(world, model, own).at(0).received, 8);
    own.add(0, {.tokens = {0, 0}, .received = endpoint.rank()});
    EXPECT_EQ(test::code_of([&] { sum_over_ranks(world, model, own); }), core::ErrorCode::kInternal);
  });
}

TEST(ExpertLoad, IsInTheMetricsOfAStep) {
  StepMetrics step;
  step.experts = {{1, load_of({3, 0}, 2.5, 2)}, {4, load_of({1, 2}, 1.5, 2)}};
  step.experts.at(4).mtp = 1;
  step.experts.at(4).holders = {1, 0};
  std::string text;
  step.write_json({}, text);
  const auto record = nlohmann::json::parse(text);
  EXPECT_DOUBLE_EQ(record.at("load_balancing_loss"), 1.0);
  EXPECT_FALSE(record.contains("z_loss"));
  ASSERT_EQ(record.at("experts").size(), 2U);
  EXPECT_EQ(record.at("experts")[0],
            nlohmann::json::parse(R"({"layer":1,"tokens":[3,0],"dropped":0,"load_balancing_loss":1.25})"));
  EXPECT_EQ(record.at("experts")[1].at("tokens"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(record.at("experts")[1].at("mtp"), 1);
  EXPECT_EQ(record.at("experts")[1].at("ranks"), (std::vector<int64_t>{1, 0}));
}

}  // namespace
}  // namespace ms::train
