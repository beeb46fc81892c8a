#include "train/ops/moe_router.h"

#include <cmath>
#include <limits>
#include <set>

#include "tests/train/ops/moe_golden.h"

namespace ms::ops {
namespace {

using nlohmann::json;

constexpr double kBar = 2e-6;  // both compute in fp32; ours in fp64, rounded

RouterParams params_of(const json& given) {
  RouterParams params;
  params.topk = given.at("topk");
  params.sinkhorn = given.value("sinkhorn", false);
  params.sparse_mixer = given.value("sparse_mixer", false);
  params.scores = params.sinkhorn && params.topk == 1 ? RouterScores::kSigmoid : golden_scores(given);
  const bool of_all = given.value("pre_softmax", false) || params.sinkhorn;
  if (params.scores == RouterScores::kSoftmax && !of_all) params.scores = RouterScores::kSoftmaxOfChosen;
  params.num_groups = given.value("num_groups", 0);
  params.group_topk = given.value("group_topk", 0);
  params.groups_by_best = given.value("groups_by_best", false);
  params.scaling_factor = given.value("scaling_factor", 1.0);
  return params;
}

// What slots have, in megatron-core's form [T, E].
reference::Array by_expert(const Routing& routing, int64_t experts, bool weights) {
  const int64_t k = routing.experts.dim(1);
  reference::Array result(static_cast<size_t>(routing.experts.dim(0) * experts));
  const auto to = routing.sent_to().elements<int32_t>();
  for (size_t slot = 0; slot < to.size(); ++slot) {
    if (to[slot] == experts) continue;
    const int64_t token = static_cast<int64_t>(slot) / k;
    result[static_cast<size_t>(token * experts + to[slot])] =
        weights ? static_cast<double>(routing.probs.elements<float>()[slot]) : 1;
  }
  return result;
}

void check_routing(int threads, const json& golden) {
  Ops ops(threads);
  const json& given = golden.at("case");
  RouterParams params = params_of(given);
  const core::Tensor logits = matrix(ops, golden.at("logits"));
  const int64_t tokens = logits.dim(0), experts = logits.dim(1);
  core::Tensor bias, draws;
  if (golden.contains("draws")) {
    draws = matrix(ops, golden.at("draws"));
    params.draws = &draws.view();
  }
  if (golden.contains("bias")) bias = matrix(ops, json::array({golden.at("bias")}));
  Routing routing = choose_experts(ops.context, logits, params, bias.defined() ? &bias.view() : nullptr);
  if (given.contains("capacity_factor")) {
    const int64_t capacity = expert_capacity(tokens, params.topk, experts, given["capacity_factor"]);
    drop_beyond_capacity(ops.context, routing, experts, capacity,
                         given["policy"] == "probs" ? DropPolicy::kProbs : DropPolicy::kPosition);
  }
  EXPECT_EQ(by_expert(routing, experts, false), flat(golden.at("map")));
  const reference::Array probs = by_expert(routing, experts, true), want = flat(golden.at("probs"));
  for (size_t i = 0; i < probs.size(); ++i) EXPECT_NEAR(probs[i], want[i], kBar) << i;
  const reference::Array of_experts = flat(golden.at("dprobs"));
  const core::Tensor dprobs = ops.zeros(routing.probs.shape());
  const auto to = routing.sent_to().elements<int32_t>();
  for (size_t slot = 0; slot < to.size(); ++slot) {
    const auto token = static_cast<int64_t>(slot) / params.topk;
    if (to[slot] == experts) continue;
    dprobs.elements<float>()[slot] = static_cast<float>(of_experts[static_cast<size_t>(token * experts + to[slot])]);
  }
  const core::Tensor dlogits = choose_experts_backward(ops.context, dprobs, logits, routing, params);
  expect_near(dlogits, flat(golden.at("dlogits")), kBar, kBar, "dlogits");
}

TEST(MoeRouter, ChoicesWeightsAndGradientsAreThoseOfMegatronCore) {
  const auto is_routing = [](const json& golden) { return golden.contains("probs"); };
  for (const int threads : {1, 3})
    for_each_golden(is_routing, [&](const json& golden) { check_routing(threads, golden); });
}

TEST(MoeRouter, ChoicesAreInTheOrderOfTheirScores) {
  Ops ops;
  const core::Tensor logits = ops.tensor<float>({1, 3, 2, 3, 0, 5, 5, 5}, {2, 4});
  const Routing routing = choose_experts(ops.context, logits, {.topk = 3});
  EXPECT_EQ(values<int32_t>(routing.experts), (std::vector<int32_t>{1, 3, 2, 1, 2, 3}));
  EXPECT_EQ(tokens_per_expert(routing.sent_to(), 4), (std::vector<int64_t>{0, 2, 2, 2}));
}

TEST(MoeRouter, EveryTokenHasDistinctExpertsWhateverItsScoresAre) {
  Ops ops;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const core::Tensor logits =
      ops.tensor<float>({kNan, kNan, kNan, kNan, -kInf, -kInf, -kInf, kNan, 1, kNan, kInf, 0}, {3, 4});
  for (const RouterParams& params :
       {RouterParams{.topk = 3}, RouterParams{.topk = 3, .scores = RouterScores::kSigmoid},
        RouterParams{.topk = 2, .scores = RouterScores::kSoftmax, .num_groups = 2, .group_topk = 1},
        RouterParams{.topk = 3, .scores = RouterScores::kSoftmax, .sinkhorn = true},
        RouterParams{.topk = 2, .sparse_mixer = true}}) {
    const Routing routing = choose_experts(ops.context, logits, params);
    const auto chosen = routing.experts.elements<int32_t>();
    for (int64_t token = 0; token < 3; ++token) {
      std::set<int32_t> distinct;
      for (int64_t i = 0; i < params.topk; ++i) distinct.insert(chosen[static_cast<size_t>(token * params.topk + i)]);
      EXPECT_EQ(static_cast<int64_t>(distinct.size()), params.topk);
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 4);
    }
  }
}

TEST(MoeRouter, OfEqualWeightsTheFirstTokensStay) {
  Ops ops;
  for (const DropPolicy policy : {DropPolicy::kProbs, DropPolicy::kPosition}) {
    const core::Tensor logits = ops.tensor<float>({1, 0, 1, 0, 1, 0, 1, 0}, {4, 2});
    Routing routing = choose_experts(ops.context, logits, {.topk = 1});
    drop_beyond_capacity(ops.context, routing, 2, expert_capacity(4, 1, 2, 1.0), policy);
    EXPECT_EQ(values<int32_t>(routing.sent_to()), (std::vector<int32_t>{0, 0, 2, 2}));
    EXPECT_EQ(values<float>(routing.probs), (std::vector<float>{1, 1, 0, 0}));
    EXPECT_EQ(tokens_per_expert(routing.sent_to(), 2), (std::vector<int64_t>{2, 0}));
  }
}

// Of the other tokens choices, weights and capacities are those that they have alone.
TEST(MoeRouter, PaddingIsSentNowhereAndChangesNoChoice) {
  Ops ops;
  const core::Tensor with = ops.random<float>({7, 4}, 3), without = ops.zeros({5, 4});
  const std::vector<uint8_t> padding = {0, 0, 1, 0, 0, 0, 1};
  const int64_t rows[] = {0, 1, 3, 4, 5};
  for (size_t i = 0; i < 5; ++i)
    std::ranges::copy(with.view().rows(rows[i], rows[i] + 1).elements<float>(), without.data<float>() + 4 * i);
  for (const bool sinkhorn : {false, true}) {
    RouterParams params = {.topk = 2, .scores = RouterScores::kSoftmax, .sinkhorn = sinkhorn};
    Routing alone = choose_experts(ops.context, without, params);
    params.padding = padding;
    Routing padded = choose_experts(ops.context, with, params);
    drop_padding(ops.context, padded, 4, padding);
    EXPECT_EQ(padded.padding, padding);
    for (const bool drops : {false, true}) {
      if (drops) {
        drop_beyond_capacity(ops.context, alone, 4, 2, DropPolicy::kProbs);
        drop_beyond_capacity(ops.context, padded, 4, 2, DropPolicy::kProbs);
      }
      for (size_t i = 0; i < 5; ++i) {
        const auto own = [&](const core::TensorView& of, int64_t row) { return of.rows(row, row + 1); };
        const auto token = static_cast<int64_t>(i);
        EXPECT_EQ(values<int32_t>(own(padded.sent_to(), rows[i])), values<int32_t>(own(alone.sent_to(), token)));
        EXPECT_EQ(values<float>(own(padded.probs, rows[i])), values<float>(own(alone.probs, token)));
      }
      for (const size_t token : {2U, 6U}) {
        for (size_t slot = 2 * token; slot < 2 * token + 2; ++slot) {
          EXPECT_EQ(padded.sent_to().elements<int32_t>()[slot], 4);
          EXPECT_EQ(padded.probs.elements<float>()[slot], 0);
        }
      }
    }
  }
  Routing none = choose_experts(ops.context, with, {.topk = 2});
  drop_padding(ops.context, none, 4, {});
  EXPECT_EQ(values<int32_t>(none.destinations), values<int32_t>(none.experts));
}

}  // namespace
}  // namespace ms::ops
