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

}  // namespace
}  // namespace ms::train
