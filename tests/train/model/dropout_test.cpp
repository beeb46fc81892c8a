#include "train/model/dropout.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/train/model/rank.h"

namespace ms::train {
namespace {

constexpr int64_t kSeq = 16, kBatch = 2, kWidth = 32;
const std::vector<int64_t> kSamples = {7, 3};

// The result of dropout at this place for an input of ones, [kSeq, kBatch, kWidth] row-major, assembled from all ranks.
std::vector<float> masks(const TrainerConfig& config, int ranks, const std::string& place,
                         const std::vector<int64_t>& samples = kSamples) {
  std::vector<float> whole(static_cast<size_t>(kSeq * kBatch * kWidth));
  test::run_thread_ranks(ranks, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    const HiddenDropout dropout(*rank.state, place);
    const bool cut = rank.state->sequence_parallel();
    const int64_t rows = kSeq / rank.state->groups.grid.cp, own = cut ? rows / rank.state->tp_size() : rows;
    const layout::SequenceShare share = sequence_share(rank.config.parallel, kSeq, rank.state->groups.at.cp);
    core::Tensor x(rank.arena, core::DType::kFp32, {own, kBatch, kWidth}, core::MemoryTag::kTmp);
    std::fill_n(x.data<float>(), x.size(), 1.0F);
    dropout.apply(x, {.samples = samples, .share = share});
    // Without sequence parallelism every TP rank has the same rows, and writes the same values.
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const int64_t first = cut ? rank.state->tp_rank() * own : 0;
    share.for_each_run(first, first + own, [&](int64_t row, int64_t position, int64_t count) {
      std::copy_n(x.data<float>() + (row - first) * kBatch * kWidth, count * kBatch * kWidth,
                  whole.begin() + position * kBatch * kWidth);
    });
  });
  return whole;
}

class HiddenDropoutTest : public testing::Test {
 protected:
  TrainerConfig config(const test::TinyLayout& layout = {}, double probability = 0.25) {
    TrainerConfig out = test::tiny_config(folder_.path(), layout);
    out.model.hidden_dropout = probability;
    return out;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(HiddenDropoutTest, KeepsTheExpectedShareAndScalesIt) {
  const auto seen = masks(config(), 1, "decoder.layers.0.mlp");
  size_t kept = 0;
  for (const float value : seen) {
    if (value == 0) continue;
    EXPECT_FLOAT_EQ(value, 1 / 0.75F);
    ++kept;
  }
  // Five standard deviations of the binomial distribution.
  const auto n = static_cast<double>(seen.size());
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * n, 5 * std::sqrt(n * 0.75 * 0.25));
}

TEST_F(HiddenDropoutTest, MasksEqualOneRanksOnEveryLayout) {
  const std::string place = "decoder.layers.3.self_attention";
  const auto one = masks(config(), 1, place);
  EXPECT_EQ(masks(config({.tp = 2}), 2, place), one);
  EXPECT_EQ(masks(config({.tp = 2, .sp = true}), 2, place), one);
  EXPECT_EQ(masks(config({.tp = 4, .sp = true}), 4, place), one);
  EXPECT_EQ(masks(config({.cp = 4}), 4, place), one);
  EXPECT_EQ(masks(config({.tp = 2, .sp = true, .cp = 2, .context = "all_gather"}), 4, place), one);
}

TEST_F(HiddenDropoutTest, MasksDifferByPlaceSeedAndSample) {
  const auto one = masks(config(), 1, "decoder.layers.0.mlp");
  EXPECT_NE(masks(config(), 1, "decoder.layers.1.mlp"), one);
  TrainerConfig other = config();
  other.rng.seed = 4321;
  EXPECT_NE(masks(other, 1, "decoder.layers.0.mlp"), one);
  EXPECT_NE(masks(config(), 1, "decoder.layers.0.mlp", {7, 4}), one);
}

TEST_F(HiddenDropoutTest, DropsNothingOutsideTrainingOrWithProbabilityZero) {
  const std::vector<float> ones(static_cast<size_t>(kSeq * kBatch * kWidth), 1.0F);
  EXPECT_EQ(masks(config(), 1, "decoder.layers.0.mlp", {}), ones);
  EXPECT_EQ(masks(config({}, 0), 1, "decoder.layers.0.mlp"), ones);
}

}  // namespace
}  // namespace ms::train
