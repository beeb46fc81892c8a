// What the router of a layer does beyond one micro-batch: the loss of a step's tokens over micro-batches and replicas,
// and random logits. Choices, weights and gradients: moe_layer_test.cpp and tests/train/ops/moe_router_test.cpp.
#include "train/model/router.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/support/random_values.h"
#include "tests/train/model/rank.h"
#include "train/model/routing_statistics.h"

namespace ms::train {
namespace {

constexpr int64_t kTokens = 12, kExperts = 6, kTopk = 2, kLayer = 1;

TrainerConfig config_of(const std::filesystem::path& folder, int dp) {
  TrainerConfig config = test::tiny_config(folder, {1, 1, dp});
  config.model.num_experts = kExperts;
  config.model.moe_router_topk = kTopk;
  config.model.moe_ffn_hidden_size = 12;
  config.model.init_method_std = 0.4;
  config.parallel.shared_memory = false;
  return config;
}

core::Tensor tokens_of(Rank& rank, uint64_t salt) {
  core::Tensor x(rank.arena, core::DType::kFp32, {kTokens, rank.config.model.hidden_size}, core::MemoryTag::kTmp);
  std::ranges::copy(test::RandomValues(salt).make<float>(x.size(), 1), x.data<float>());
  return x;
}

// Softmax scores summed over tokens, and tokens that have an expert among their two highest.
struct Load {
  std::vector<double> scores = std::vector<double>(kExperts), counts = std::vector<double>(kExperts);
};

Load load_of(const core::TensorView& logits) {
  Load load;
  for (int64_t t = 0; t < logits.dim(0); ++t) {
    const auto row = logits.elements<float>().subspan(static_cast<size_t>(t * kExperts), kExperts);
    double sum = 0;
    for (const float x : row) sum += std::exp(x);
    for (size_t e = 0; e < row.size(); ++e) {
      load.scores[e] += std::exp(row[e]) / sum;
      load.counts[e] += std::ranges::count_if(row, [&](float other) { return other > row[e]; }) < kTopk ? 1 : 0;
    }
  }
  return load;
}

double loss_of(const std::vector<double>& counts, const std::vector<double>& scores) {
  double sum = 0;
  for (size_t e = 0; e < counts.size(); ++e) sum += counts[e] * scores[e];
  return kExperts * sum / (kTopk * kTokens * kTokens);
}

// Each micro-batch has the mean counts of those before it in the step, of all replicas, and the step after it none.
TEST(Router, LossOfAStepCountsItsMicrobatchesOfAllReplicas) {
  const test::TemporaryFolder folder;
  for (const int replicas : {1, 2}) {
    TrainerConfig config = config_of(folder.path(), replicas);
    config.training.moe_router_load_balancing_type = {std::string(kGlobalAuxLoss)};
    config.training.moe_aux_loss_coeff = {0.5};
    std::vector<std::vector<Load>> loads(static_cast<size_t>(replicas));  // of each micro-batch
    std::vector<std::vector<double>> losses(loads.size());
    test::run_thread_ranks(replicas, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
      RoutingStatistics statistics;
      rank.state->routing = &statistics;
      Router router(*rank.state, *rank.parameters, kLayer);
      const std::vector<int64_t> samples = {0, 1};
      const SequenceContext sequence{.samples = samples, .auxiliary_scale = 1};
      const auto replica = static_cast<size_t>(endpoint.rank());
      for (uint64_t microbatch = 0; microbatch < 4; ++microbatch) {
        if (microbatch == 3) statistics.clear();  // a new step
        const core::Tensor x = tokens_of(rank, 10 * replica + microbatch);
        MoeActivations saved;
        router.forward(x, saved, sequence);
        loads[replica].push_back(load_of(saved.logits));
        core::Tensor dprobs =
            core::Tensor::zeros(rank.arena, core::DType::kFp32, {kTokens, kTopk}, core::MemoryTag::kTmp);
        const core::Tensor dx = core::Tensor::zeros(rank.arena, core::DType::kFp32, x.shape(), core::MemoryTag::kTmp);
        losses[replica].push_back(router.backward(std::move(dprobs), x, saved, 2, sequence, dx).global_aux);
      }
    });
    for (size_t replica = 0; replica < loads.size(); ++replica) {
      for (size_t microbatch = 0; microbatch < 4; ++microbatch) {
        const size_t first = microbatch == 3 ? 3 : 0;
        std::vector<double> counts(kExperts);
        for (const auto& of_replica : loads) {
          for (size_t m = first; m <= microbatch; ++m) {
            for (size_t e = 0; e < counts.size(); ++e)
              counts[e] += of_replica[m].counts[e] / static_cast<double>((microbatch - first + 1) * loads.size());
          }
        }
        const double want = loss_of(counts, loads[replica][microbatch].scores);
        EXPECT_NEAR(losses[replica][microbatch], want, 1e-6 * want) << replica << ", " << microbatch;
      }
    }
  }
}

// Random logits hide the weights from the choice, in training alone; they are drawn anew for each sample.
TEST(Router, ForcedBalanceDrawsLogits) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder.path(), 1);
  config.training.moe_router_force_load_balancing = true;
  test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
    Rank rank(endpoint, config);
    rank.parameters->initialize(5, [](const Parameter&, const core::TensorView&) {});
    Router router(*rank.state, *rank.parameters, kLayer);
    const auto logits = [&](const SequenceContext& sequence, uint64_t salt) {
      MoeActivations saved;
      router.forward(tokens_of(rank, salt), saved, sequence);
      const auto values = saved.logits.elements<float>();
      return std::vector<float>(values.begin(), values.end());
    };
    const std::vector<int64_t> samples = {0, 1}, others = {2, 3};
    EXPECT_EQ(logits({.samples = samples}, 1), logits({.samples = samples}, 2));
    EXPECT_NE(logits({.samples = samples}, 1), logits({.samples = others}, 1));
    EXPECT_NE(logits({}, 1), logits({}, 2));
  });
}

// Logits that differ by less than a hundredth: all experts are drawn, in training alone, anew for each sample; outside
// it all tokens have the two highest.
TEST(Router, SparseMixerDrawsInTraining) {
  const test::TemporaryFolder folder;
  TrainerConfig config = config_of(folder.path(), 1);
  config.training.moe_router_load_balancing_type = {std::string(kSparseMixer)};
  const auto choices = [&](const SequenceContext& sequence) {
    std::vector<int32_t> experts;
    test::run_thread_ranks(1, [&](core::Endpoint& endpoint) {
      Rank rank(endpoint, config);
      Router router(*rank.state, *rank.parameters, kLayer);
      const core::TensorView& weight = rank.parameters->at("decoder.layers.1.mlp.router.weight").weight;
      for (int64_t i = 0; i < weight.size(); ++i)
        weight.data<float>()[i] = 1 + 0.001F * static_cast<float>(i / weight.dim(1));
      core::Tensor tokens = tokens_of(rank, 1);
      for (float& x : tokens.elements<float>()) x = 1 + 0.1F * x;
      MoeActivations saved;
      router.forward(tokens, saved, sequence);
      const auto values = saved.routing.experts.elements<int32_t>();
      experts.assign(values.begin(), values.end());
    });
    return experts;
  };
  const std::vector<int64_t> samples = {0, 1}, others = {2, 3};
  const std::vector<int32_t> drawn = choices({.samples = samples}), highest = choices({});
  EXPECT_EQ(choices({.samples = samples}), drawn);
  EXPECT_NE(choices({.samples = others}), drawn);
  for (size_t slot = 0; slot < highest.size(); ++slot)
    EXPECT_EQ(highest[slot], static_cast<int32_t>(kExperts - 1 - slot % 2));
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), static_cast<size_t>(kExperts));
}

}  // namespace
}  // namespace ms::train
