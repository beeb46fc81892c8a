#include "train/ops/moe_balance.h"

#include "tests/train/ops/moe_golden.h"

namespace ms::ops {
namespace {

using nlohmann::json;

constexpr double kBar = 1e-6;

void check_losses(int threads, const json& golden) {
  Ops ops(threads);
  const json &given = golden.at("case"), &want = golden.at("losses");
  BalanceParams params = {.topk = given.at("topk"),
                          .scores = golden_scores(given),
                          .batch = given.value("batch", 1),
                          .aux_coeff = given.value("aux", 0.0),
                          .seq_aux_coeff = given.value("seq_aux", 0.0),
                          .global_aux_coeff = given.value("global_aux", 0.0),
                          .z_coeff = given.value("z", 0.0)};
  params.mean_of_step = [&](std::span<double> counts) {
    std::ranges::copy(golden.at("mean_of_step").get<std::vector<double>>(), counts.begin());
  };
  const core::Tensor logits = matrix(ops, golden.at("logits"));
  const core::Tensor dlogits = ops.zeros(logits.shape());
  const BalanceLosses losses = add_balance_gradients(ops.context, logits, params, 1, dlogits);
  EXPECT_NEAR(losses.aux, want.value("aux", 0.0), kBar * losses.aux);
  EXPECT_NEAR(losses.seq_aux, want.value("seq_aux", 0.0), kBar * losses.seq_aux);
  EXPECT_NEAR(losses.global_aux, want.value("global_aux", 0.0), kBar * losses.global_aux);
  EXPECT_NEAR(losses.z, want.value("z", 0.0), kBar * losses.z);
  const reference::Array gradient = flat(golden.at("dlogits"));
  double largest = 0;
  for (const double one : gradient) largest = std::max(largest, std::abs(one));
  expect_near(dlogits, gradient, kBar * largest, kBar, "dlogits");
}

TEST(MoeBalance, LossesAndGradientsAreThoseOfMegatronCore) {
  const auto has_losses = [](const json& golden) { return golden.contains("losses"); };
  for (const int threads : {1, 3})
    for_each_golden(has_losses, [&](const json& golden) { check_losses(threads, golden); });
}

// Of what groups have left: each choice counts, whether it has a highest score or not.
TEST(MoeBalance, CountsTheChosenExpertsIfTheyAreGiven) {
  Ops ops;
  const core::Tensor logits = ops.tensor<float>({2, 1, 0, 3, 1, 0}, {2, 3});
  const core::Tensor chosen = ops.tensor<int32_t>({2, 2}, {2, 1});
  BalanceParams params = {.topk = 1, .aux_coeff = 1, .chosen = &chosen.view()};
  const core::Tensor dlogits = ops.zeros(logits.shape());
  const auto score_of_last = [&](size_t first) {
    const auto row = logits.elements<float>().subspan(first, 3);
    return std::exp(row[2]) / (std::exp(row[0]) + std::exp(row[1]) + std::exp(row[2]));
  };
  // E / (k T^2) n_2 sum_t q_t2
  EXPECT_NEAR(add_balance_gradients(ops.context, logits, params, 1, dlogits).aux,
              3.0 / 4 * 2 * (score_of_last(0) + score_of_last(3)), 1e-6);
}

// Losses and gradients of tokens with padding between them are those of the tokens alone.
TEST(MoeBalance, PaddingCountsNowhere) {
  Ops ops;
  const core::Tensor with = ops.random<float>({6, 4}, 1), without = ops.zeros({4, 4});
  const std::vector<uint8_t> padding = {0, 0, 0, 1, 0, 1};  // of two samples, the second of which has one token
  const int64_t rows[] = {0, 1, 2, 4};
  for (size_t i = 0; i < 4; ++i)
    std::ranges::copy(with.view().rows(rows[i], rows[i] + 1).elements<float>(), without.data<float>() + 4 * i);
  BalanceParams params = {.topk = 2, .aux_coeff = 0.1, .global_aux_coeff = 0.2, .z_coeff = 0.3};
  const core::Tensor want = ops.zeros({4, 4}), seen = ops.zeros({6, 4});
  const BalanceLosses alone = add_balance_gradients(ops.context, without, params, 1, want);
  params.batch = 2, params.padding = padding, params.whole_tokens = 4;
  const BalanceLosses padded = add_balance_gradients(ops.context, with, params, 1, seen);
  EXPECT_NEAR(padded.aux, alone.aux, 1e-9 * alone.aux);
  EXPECT_NEAR(padded.global_aux, alone.global_aux, 1e-9 * alone.global_aux);
  EXPECT_NEAR(padded.z, alone.z, 1e-9 * alone.z);
  for (size_t i = 0; i < 4; ++i)
    expect_near(seen.view().rows(rows[i], rows[i] + 1), array(want.view().rows(int64_t(i), int64_t(i) + 1)), 1e-9, 1e-6,
                "");
  for (const int64_t row : {3, 5}) expect_near(seen.view().rows(row, row + 1), reference::Array(4), 0, 0, "padding");
}

// Of micro-batches of other sizes in the step: the share of each expert is that of all their tokens.
TEST(MoeBalance, TheLossOfTheStepTakesSharesOfItsTokens) {
  Ops ops;
  const core::Tensor logits = ops.random<float>({5, 3}, 1), dlogits = ops.zeros({5, 3});
  const auto loss = [&](double scale) {
    BalanceParams params = {.topk = 1, .global_aux_coeff = 1};
    params.mean_of_step = [&](std::span<double> counts) {
      const double shares[] = {0.5, 0.3, 0.2};
      for (size_t e = 0; e < 3; ++e) counts[e] = scale * shares[e];
    };
    return add_balance_gradients(ops.context, logits, params, 1, dlogits).global_aux;
  };
  EXPECT_NEAR(loss(10), loss(5), 1e-12);
}

TEST(MoeBalance, ScaledGradientsAreAddedToWhatIsThere) {
  Ops ops;
  const core::Tensor logits = ops.random<float>({6, 4}, 1);
  BalanceParams params = {.topk = 2, .batch = 2, .aux_coeff = 0.1, .seq_aux_coeff = 0.2, .z_coeff = 0.3};
  const core::Tensor once = ops.zeros(logits.shape()), more = ops.random<float>(logits.shape(), 2);
  const reference::Array before = array(more);
  add_balance_gradients(ops.context, logits, params, 1, once);
  add_balance_gradients(ops.context, logits, params, 8, more);
  const reference::Array gradient = array(once);
  reference::Array want(before);
  for (size_t i = 0; i < want.size(); ++i) want[i] += 8 * gradient[i];
  expect_near(more, want, 1e-6, 1e-6, "dlogits");
}

}  // namespace
}  // namespace ms::ops
