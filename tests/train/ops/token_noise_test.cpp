#include "train/ops/token_noise.h"

#include "tests/train/ops/ops_fixture.h"

namespace ms::ops {
namespace {

constexpr int64_t kSeq = 64, kColumns = 37;
const std::vector<int64_t> kSamples = {5, int64_t{1} << 40};

core::Tensor ones(Ops& ops, int64_t tokens) {
  core::Tensor x = ops.zeros({tokens, kColumns});
  std::ranges::fill(x.elements<float>(), 1.0F);
  return x;
}

TEST(TokenNoise, JitterIsUniformAroundOne) {
  Ops ops;
  constexpr double kEps = 0.25;
  const core::Tensor x = ones(ops, 2 * kSeq);
  jitter_inplace(ops.context, x, kEps, {7, 0, kSamples});
  double sum = 0, squares = 0;
  for (const float one : x.elements<float>()) {
    ASSERT_LT(std::abs(one - 1), kEps);
    sum += one - 1;
    squares += (one - 1.0) * (one - 1.0);
  }
  const auto n = static_cast<double>(x.size()), variance = kEps * kEps / 3;
  EXPECT_LT(std::abs(sum / n), 4 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 0.05 * variance);
}

TEST(TokenNoise, UniformNumbersAreBetweenZeroAndOne) {
  Ops ops;
  const core::Tensor x = ones(ops, 2 * kSeq);
  fill_uniform(ops.context, x, {7, 0, kSamples});
  double sum = 0, squares = 0;
  for (const float one : x.elements<float>()) {
    ASSERT_TRUE(one > 0 && one < 1) << one;
    sum += one - 0.5;
    squares += (one - 0.5) * (one - 0.5);
  }
  const auto n = static_cast<double>(x.size());
  EXPECT_LT(std::abs(sum / n), 4 * std::sqrt(1 / (12 * n)));
  EXPECT_NEAR(squares / n, 1.0 / 12, 0.05 / 12);
}

TEST(TokenNoise, NormalNumbersHaveTheMomentsOfANormalDistribution) {
  Ops ops;
  const core::Tensor x = ones(ops, 2 * kSeq);
  fill_normal(ops.context, x, {7, 0, kSamples});
  double sum = 0, squares = 0, fourth = 0;
  for (const float one : x.elements<float>()) sum += one, squares += one * one, fourth += std::pow(one, 4);
  const auto n = static_cast<double>(x.size());
  EXPECT_LT(std::abs(sum / n), 4 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 4 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 4 * std::sqrt(96 / n));
}

// A part of a sequence, or one of its samples, has the numbers that it has in the whole; threads change nothing.
TEST(TokenNoise, DependsOnTheTokenAlone) {
  Ops ops(1), more(3);
  const core::Tensor whole = ones(ops, 2 * kSeq), again = ones(more, 2 * kSeq);
  jitter_inplace(ops.context, whole, 0.5, {7, 0, kSamples});
  jitter_inplace(more.context, again, 0.5, {7, 0, kSamples});
  EXPECT_EQ(array(again), array(whole));
  const core::Tensor second_half = ones(ops, kSeq);
  jitter_inplace(ops.context, second_half, 0.5, {7, kSeq / 2, kSamples});
  const auto all = whole.elements<float>();
  EXPECT_TRUE(std::ranges::equal(second_half.elements<float>(), all.subspan(static_cast<size_t>(kSeq * kColumns))));
  const core::Tensor one_sample = ones(ops, kSeq);
  jitter_inplace(ops.context, one_sample, 0.5, {7, 0, std::span(kSamples).subspan(1)});
  for (int64_t position = 0; position < kSeq; ++position) {
    const auto row = [](std::span<const float> of, int64_t token) {
      return of.subspan(static_cast<size_t>(token * kColumns), static_cast<size_t>(kColumns));
    };
    EXPECT_TRUE(std::ranges::equal(row(one_sample.elements<float>(), position), row(all, 2 * position + 1)));
  }
  const core::Tensor other = ones(ops, 2 * kSeq);
  jitter_inplace(ops.context, other, 0.5, {8, 0, kSamples});
  EXPECT_NE(array(other), array(whole));
}

}  // namespace
}  // namespace ms::ops
