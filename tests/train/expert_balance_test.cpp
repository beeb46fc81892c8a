// What balances the load of experts does so: from a router that sends nine choices in ten to two of eight experts, in
// 200 steps, without a loss of what the model learns.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/reader.h"
#include "tests/support/tiny_run.h"

namespace ms {
namespace {

constexpr int64_t kExperts = 8, kFavoured = 2, kSteps = 200, kHidden = 32;
using Change = std::function<void(train::TrainerConfig&)>;

// A checkpoint whose routers prefer the first experts: the norm before them has a bias, in whose direction these
// experts' rows point. What a norm gives without its bias has no part in that direction, so that all tokens prefer them
// alike.
class Preferring final : public ckpt::Source {
 public:
  explicit Preferring(std::unique_ptr<ckpt::Source> source) : source_(std::move(source)) {}
  const ckpt::CheckpointInfo& info() const override { return source_->info(); }
  const ckpt::ShardTable& shards() const override { return source_->shards(); }
  std::string describe(int32_t shard) const override { return source_->describe(shard); }
  void read(int32_t shard, const core::Dims& offset, const core::Dims& extent, std::byte* out) override {
    source_->read(shard, offset, extent, out);
    const std::string key = source_->shards()[static_cast<size_t>(shard)].key;
    const std::span<float> values(reinterpret_cast<float*>(out), static_cast<size_t>(core::num_elements(extent)));
    if (key.ends_with("pre_mlp_layernorm.bias")) {
      for (float& value : values) value += kBias;
    } else if (key.ends_with("router.weight")) {
      EXPECT_EQ(extent[1], kHidden);
      for (int64_t expert = offset[0]; expert < std::min(kFavoured, offset[0] + extent[0]); ++expert) {
        for (float& value : values.subspan(static_cast<size_t>((expert - offset[0]) * kHidden), kHidden))
          value += kPreference / (kBias * kHidden);
      }
    }
  }

 private:
  static constexpr float kBias = 0.1F;         // of each element
  static constexpr float kPreference = 1.45F;  // that it adds to a logit

  std::unique_ptr<ckpt::Source> source_;
};

class ExpertBalance : public testing::Test {
 protected:
  train::TrainerConfig config() const {
    train::TrainerConfig config = test::tiny_config(folder_.path());
    config.model.num_layers = 2;
    config.model.normalization = "LayerNorm";
    config.model.num_experts = kExperts;
    config.model.moe_router_topk = 2;
    config.model.moe_ffn_hidden_size = 24;
    config.model.init_method_std = 0.1;
    config.training.global_batch_size = 8;
    config.training.micro_batch_size = 8;
    return config;
  }
  // From the checkpoint of no step, whose routers then prefer two experts.
  train::RunSummary run(const Change& change) const {
    train::TrainerConfig run = config();
    run.training.train_iters = kSteps;
    run.checkpoint.load = folder_ / "start";
    run.checkpoint.finetune = true;
    change(run);
    return test::run_on_threads(
        run, 1, [](const auto& path, int64_t) { return std::make_unique<Preferring>(ckpt::open_native(path)); });
  }
  void make_start(const Change& change) const {
    train::TrainerConfig start = config();
    start.training.train_iters = 1;
    start.optimizer.lr = 1e-30;
    start.checkpoint.save = folder_ / "start";
    change(start);
    test::run_on_threads(start, 1);
  }

  static std::vector<double> loads_of(const train::RunSummary& summary, size_t first, size_t end, int64_t layer) {
    std::vector<double> loads(kExperts);
    for (size_t i = first; i < end; ++i) {
      const std::vector<int64_t>& tokens = summary.steps[i].experts.at(layer).tokens;
      for (size_t e = 0; e < loads.size(); ++e) loads[e] += static_cast<double>(tokens[e]);
    }
    return loads;
  }
  // Of the last steps, the busiest expert's share of the mean, in the worse layer.
  static double imbalance(const train::RunSummary& summary) {
    double worst = 0;
    for (const auto& [layer, load] : summary.steps.back().experts) {
      const std::vector<double> loads = loads_of(summary, summary.steps.size() - 10, summary.steps.size(), layer);
      double sum = 0;
      for (const double of_expert : loads) sum += of_expert;
      worst = std::max(worst, *std::ranges::max_element(loads) * kExperts / sum);
    }
    return worst;
  }
  static double final_loss(const train::RunSummary& summary) {
    double sum = 0;
    for (size_t i = summary.steps.size() - 10; i < summary.steps.size(); ++i) sum += summary.steps[i].loss;
    return sum / 10;
  }

  void expect_balanced(const Change& unbalanced_change, const Change& balancing) const {
    make_start(unbalanced_change);
    const train::RunSummary unbalanced = run(unbalanced_change);
    const train::RunSummary balanced = run([&](train::TrainerConfig& config) {
      unbalanced_change(config);
      balancing(config);
    });
    double favoured = 0, all = 0;  // choices at the start
    for (const auto& [layer, load] : unbalanced.steps.front().experts) {
      for (size_t e = 0; e < load.tokens.size(); ++e) {
        all += static_cast<double>(load.tokens[e]);
        if (e < kFavoured) favoured += static_cast<double>(load.tokens[e]);
      }
    }
    EXPECT_NEAR(favoured / all, 0.9, 0.03);
    EXPECT_GT(imbalance(unbalanced), 2) << "nothing balances it";
    EXPECT_LE(imbalance(balanced), 1.5);
    EXPECT_LE(final_loss(balanced), 1.01 * final_loss(unbalanced));
  }

  test::TemporaryFolder folder_;
};

TEST_F(ExpertBalance, ByAnAuxiliaryLoss) {
  expect_balanced([](auto&) {}, [](auto& config) { config.training.moe_aux_loss_coeff = {0.02}; });
}

TEST_F(ExpertBalance, ByABiasOfTheChoice) {
  const Change sigmoids = [](auto& config) {
    config.training.moe_router_load_balancing_type = {"none"};
    config.model.moe_router_score_function = "sigmoid";
    config.model.moe_router_enable_expert_bias = true;
    config.training.moe_router_bias_update_rate = 0;
  };
  expect_balanced(sigmoids, [](auto& config) { config.training.moe_router_bias_update_rate = 1e-2; });
}

TEST_F(ExpertBalance, BySinkhorn) {
  expect_balanced([](auto& config) { config.training.moe_router_load_balancing_type = {"none"}; },
                  [](auto& config) { config.training.moe_router_load_balancing_type = {"sinkhorn"}; });
}

}  // namespace
}  // namespace ms
