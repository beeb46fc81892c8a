#include "train/model/weight_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/train/model/rank.h"
#include "train/model/linear.h"

namespace ms::train {
namespace {

// Notes the first elements of the operands of each call.
class Noting final : public Linear {
 public:
  Noting(RankState& state, ParameterStore& parameters) : Linear(state, parameters, "decoder.layers.0.mlp.linear_fc1") {}
  void backward_weight(const core::TensorView& x, const core::TensorView& dy) override {
    calls.emplace_back(x.data<float>()[0], dy.data<float>()[0]);
  }
  std::vector<std::pair<float, float>> calls;
};

TEST(WeightGradients, RunAtOnceOrLaterInTheOrderInWhichTheyCame) {
  const test::TemporaryFolder folder;
  const TrainerConfig config = test::tiny_config(folder.path());
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    Noting linear(*rank.state, *rank.parameters);
    const auto tensor = [&](float value) {
      core::Tensor x(rank.arena, core::DType::kFp32, {16}, core::MemoryTag::kAct);
      std::fill_n(x.data<float>(), 16, value);
      return x;
    };
    using Calls = std::vector<std::pair<float, float>>;
    WeightGradients weights;
    weights.run();  // nothing was kept
    weights.add(linear, tensor(1), tensor(2));
    EXPECT_EQ(linear.calls, (Calls{{1, 2}}));
    EXPECT_EQ(rank.arena.current_bytes(core::MemoryTag::kAct), 0);

    weights.defer();
    weights.add(linear, tensor(3), tensor(4));
    weights.add(linear, tensor(5), tensor(6));
    EXPECT_EQ(linear.calls.size(), 1u);
    EXPECT_EQ(rank.arena.current_bytes(core::MemoryTag::kAct), 4 * 64) << "the operands are kept";
    weights.run();
    EXPECT_EQ(linear.calls, (Calls{{1, 2}, {3, 4}, {5, 6}}));
    EXPECT_EQ(rank.arena.current_bytes(core::MemoryTag::kAct), 0);

    weights.add(linear, tensor(7), tensor(8));  // at once again
    EXPECT_EQ(linear.calls.size(), 4u);
  });
}

// 6 pairs of operands, which come two at a time: those before the last two have left; with four pairs more than the one
// that runs in memory at most, they return in their order.
TEST(WeightGradients, OperandsLeaveMemoryAndReturn) {
  const test::TemporaryFolder folder;
  const TrainerConfig config = test::tiny_config(folder.path());
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    Noting linear(*rank.state, *rank.parameters);
    TensorSwap swap(/*min_bytes=*/64, rank.arena, folder.path().string(), 0, nullptr);
    const auto tensor = [&](float value, int64_t size) {
      core::Tensor x(rank.arena, core::DType::kFp32, {size}, core::MemoryTag::kAct);
      std::fill_n(x.data<float>(), size, value);
      return x;
    };
    const auto held = [&] { return rank.arena.current_bytes(core::MemoryTag::kAct); };
    constexpr int64_t kSmall = 4 * 8, kPair = 4 * 16 + kSmall;  // small ones stay
    WeightGradients weights;
    weights.defer(&swap);
    for (int i = 0; i < 6; ++i) {
      weights.add(linear, tensor(static_cast<float>(i), 16), tensor(static_cast<float>(-i), 8));
      if (i % 2 == 0) continue;
      weights.swap_out();
      EXPECT_EQ(held(), 2 * kPair + (i - 1) * kSmall) << i;
    }
    weights.settle();
    EXPECT_EQ(held(), 6 * kSmall);
    weights.prefetch();
    EXPECT_EQ(held(), 4 * kPair + 2 * kSmall);
    weights.run();
    EXPECT_EQ(held(), 0);
    EXPECT_EQ(linear.calls,
              (std::vector<std::pair<float, float>>{{0, 0}, {1, -1}, {2, -2}, {3, -3}, {4, -4}, {5, -5}}));
    EXPECT_EQ(swap.tier().take_use().written_bytes, 6 * 4096);

    weights.defer();  // without the swap once more
    weights.add(linear, tensor(7, 16), tensor(8, 8));
    weights.swap_out();
    EXPECT_EQ(held(), kPair);
    weights.run();
    EXPECT_EQ(swap.tier().take_use().written_bytes, 0);
  });
}

}  // namespace
}  // namespace ms::train
